import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;

/**
 * Two methods that take the same time, one by ten short requests and one by a long request, each with work of the same length
 * after the answer. The program begins when the file of its argument exists. It prints what it measured of twenty rounds: for
 * each method its time and its CPU time, ns.
 */
public class Requests {
    static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    static volatile long result;

    static void tenFastRequests(Socket server) throws IOException {
        for (int i = 0; i < 10; i++) {
            request(server, 6);
        }
    }

    static void oneSlowRequest(Socket server) throws IOException {
        request(server, 96);
    }

    /** Waits for an answer that takes this long, and works with it. */
    static void request(Socket server, int ms) throws IOException {
        server.getOutputStream().write(ms);
        server.getInputStream().read();
        long sum = 0;
        for (int i = 0; i < 4_000_000; i++) {
            sum = sum * 6364136223846793005L + i;
        }
        result = sum;
    }

    static void serve(ServerSocket listener) {
        try (Socket client = listener.accept()) {
            for (int ms; (ms = client.getInputStream().read()) >= 0; ) {
                Thread.sleep(ms);
                client.getOutputStream().write(ms);
            }
        } catch (IOException | InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    public static void main(String[] args) throws Exception {
        ServerSocket listener = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
        Thread thread = new Thread(() -> serve(listener), "server");
        thread.setDaemon(true);
        thread.start();
        Socket server = new Socket(listener.getInetAddress(), listener.getLocalPort());
        server.setTcpNoDelay(true);
        for (int i = 0; i < 10; i++) {
            request(server, 1);
        }
        Target.ready();
        Path go = Paths.get(args[0]);
        while (!Files.exists(go)) {
            Thread.sleep(1);
        }
        long[] times = new long[4];
        for (int round = 0; round < 20; round++) {
            long begin = System.nanoTime(), cpu = THREADS.getCurrentThreadCpuTime();
            tenFastRequests(server);
            long middle = System.nanoTime(), middleCpu = THREADS.getCurrentThreadCpuTime();
            oneSlowRequest(server);
            times[0] += middle - begin;
            times[1] += middleCpu - cpu;
            times[2] += System.nanoTime() - middle;
            times[3] += THREADS.getCurrentThreadCpuTime() - middleCpu;
        }
        Target.say("requests " + times[0] + " " + times[1] + " " + times[2] + " " + times[3]);
        Thread.currentThread().join();
    }
}
