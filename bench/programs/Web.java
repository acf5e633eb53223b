import io.vertx.core.AbstractVerticle;
import io.vertx.core.Promise;
import io.vertx.core.Vertx;
import io.vertx.core.http.HttpServerRequest;
import io.vertx.core.json.JsonArray;
import io.vertx.core.json.JsonObject;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** A web service: each request filters and sorts a list, and returns a part as JSON. The program prints its port. */
public final class Web extends AbstractVerticle {
    private static final class Item {
        private final int id;
        private final String name;
        private final double price;

        Item(int id, String name, double price) {
            this.id = id;
            this.name = name;
            this.price = price;
        }

        String name() {
            return name;
        }

        double price() {
            return price;
        }
    }

    private static final List<Item> ITEMS = IntStream.range(0, 500)
            .mapToObj(i -> new Item(i, "item " + i * 7919 % 1000, i * 31 % 97))
            .collect(Collectors.toList());

    @Override
    public void start(Promise<Void> started) {
        vertx.createHttpServer()
                .requestHandler(Web::answer)
                .listen(0, "127.0.0.1")
                .onSuccess(server -> {
                    System.out.println("port " + server.actualPort());
                    started.complete();
                })
                .onFailure(started::fail);
    }

    private static void answer(HttpServerRequest request) {
        int from = request.path().hashCode() & 63;
        JsonArray items = new JsonArray();
        ITEMS.stream()
                .filter(item -> item.price() >= from)
                .sorted(Comparator.comparing(Item::price).thenComparing(Item::name))
                .limit(20)
                .map(item -> new JsonObject().put("id", item.id).put("name", item.name()).put("price", item.price()))
                .forEach(items::add);
        request.response().putHeader("content-type", "application/json").end(items.toBuffer());
    }

    public static void main(String[] args) {
        Vertx.vertx().deployVerticle(new Web()).onFailure(why -> {
            why.printStackTrace();
            System.exit(1);
        });
    }
}
