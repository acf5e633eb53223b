import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A slow service: each request sleeps. Arguments: threads, milliseconds of sleep. The program prints its port. {@code
 * /slept} answers with the number of requests until now, and with the nanoseconds that they slept.
 */
public final class Slow {
    private static final AtomicLong REQUESTS = new AtomicLong();
    private static final AtomicLong SLEPT_NS = new AtomicLong();

    private Slow() {}

    public static void main(String[] args) throws IOException {
        int threads = Integer.parseInt(args[0]);
        long ms = Long.parseLong(args[1]);
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.createContext("/slept", exchange -> reply(exchange, REQUESTS.get() + " " + SLEPT_NS.get()));
        server.createContext("/", exchange -> {
            sleep(ms);
            reply(exchange, "ok");
        });
        server.setExecutor(Executors.newFixedThreadPool(threads));
        server.start();
        System.out.println("port " + server.getAddress().getPort());
    }

    private static void sleep(long ms) {
        long begin = System.nanoTime();
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
        SLEPT_NS.addAndGet(System.nanoTime() - begin);
        REQUESTS.incrementAndGet();
    }

    private static void reply(HttpExchange exchange, String text) throws IOException {
        byte[] body = text.getBytes(StandardCharsets.US_ASCII);
        exchange.sendResponseHeaders(200, body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
    }
}
