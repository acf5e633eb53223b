import java.io.BufferedWriter;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStreamWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicLong;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.zip.CRC32;
import java.util.zip.GZIPInputStream;
import java.util.zip.GZIPOutputStream;

/**
 * A small shop for the demo: two clerks take orders as JSON text, read them back with a regular expression, keep stock
 * in a concurrent map and rank the best sellers; an archivist writes the orders compressed to a file and reads it back.
 * No known truth, but all that a real service's profile has: lambdas, inlining, collections, zlib, files, GC.
 */
final class Shop {
    private static final String[] GOODS = {"apple", "bread", "cheese", "dates", "eggs", "flour", "grapes", "honey"};
    private static final Pattern FIELD = Pattern.compile("\"(\\w+)\":\\s*(?:\"([^\"]*)\"|(\\d+))");

    private final Map<String, AtomicLong> sold = new ConcurrentHashMap<>();
    private final Object journalLock = new Object();
    private List<String> journal = new ArrayList<>();

    /** One line of an order. */
    static final class Order {
        final int id;
        final String good;
        final int amount;
        final int cents;

        Order(int id, String good, int amount, int cents) {
            this.id = id;
            this.good = good;
            this.amount = amount;
            this.cents = cents;
        }

        int total() {
            return amount * cents;
        }

        String toJson() {
            return new StringBuilder(80)
                    .append("{\"id\": ").append(id)
                    .append(", \"good\": \"").append(good)
                    .append("\", \"amount\": ").append(amount)
                    .append(", \"cents\": ").append(cents)
                    .append('}')
                    .toString();
        }

        static Order fromJson(String json) {
            int id = 0;
            int amount = 0;
            int cents = 0;
            String good = "";
            Matcher field = FIELD.matcher(json);
            while (field.find()) {
                switch (field.group(1)) {
                    case "id": id = Integer.parseInt(field.group(3)); break;
                    case "amount": amount = Integer.parseInt(field.group(3)); break;
                    case "cents": cents = Integer.parseInt(field.group(3)); break;
                    case "good": good = field.group(2); break;
                    default: throw new IllegalArgumentException(json);
                }
            }
            return new Order(id, good, amount, cents);
        }
    }

    private List<String> customers(Random random, int count) {
        List<String> orders = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            String good = GOODS[Math.min(random.nextInt(GOODS.length), random.nextInt(GOODS.length))];
            orders.add(new Order(i, good, 1 + random.nextInt(9), 50 + random.nextInt(900)).toJson());
        }
        return orders;
    }

    private void sell(Order order) {
        sold.computeIfAbsent(order.good, good -> new AtomicLong()).addAndGet(order.amount);
    }

    private List<String> bestSellers(List<Order> orders) {
        Map<String, Integer> turnover =
                orders.stream().collect(Collectors.groupingBy(order -> order.good, Collectors.summingInt(Order::total)));
        return turnover.entrySet().stream()
                .sorted(Map.Entry.<String, Integer>comparingByValue(Comparator.reverseOrder()))
                .limit(3)
                .map(Map.Entry::getKey)
                .collect(Collectors.toList());
    }

    private void clerk(int number) {
        Random random = new Random(number);
        for (long day = 0; ; day++) {
            List<String> texts = customers(random, 500);
            List<Order> orders = texts.stream().map(Order::fromJson).collect(Collectors.toList());
            orders.forEach(this::sell);
            orders.sort(Comparator.comparingInt(Order::total).thenComparing(order -> order.good));
            if (bestSellers(orders).isEmpty()) {
                throw new IllegalStateException("nobody bought anything");
            }
            synchronized (journalLock) {
                if (journal.size() < 20_000) {
                    journal.addAll(texts);
                }
            }
            if (number == 0 && day == 40) {
                Target.ready();
            }
        }
    }

    private void archive(Path file) throws IOException {
        List<String> texts;
        synchronized (journalLock) {
            texts = journal;
            journal = new ArrayList<>();
        }
        try (BufferedWriter out = new BufferedWriter(new OutputStreamWriter(
                new GZIPOutputStream(Files.newOutputStream(file)), StandardCharsets.UTF_8))) {
            for (String text : texts) {
                out.write(text);
                out.newLine();
            }
        }
        CRC32 sum = new CRC32();
        byte[] part = new byte[8192];
        try (InputStream in = new GZIPInputStream(Files.newInputStream(file))) {
            for (int n = in.read(part); n >= 0; n = in.read(part)) {
                sum.update(part, 0, n);
                Arrays.fill(part, 0, n, (byte) 0);
            }
        }
    }

    private void archivist() {
        try {
            Path file = Files.createTempFile("shop-", ".gz");
            file.toFile().deleteOnExit();
            while (true) {
                archive(file);
                Thread.sleep(20);
            }
        } catch (IOException | InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    public static void main(String[] args) {
        Shop shop = new Shop();
        ExecutorService clerks = Executors.newFixedThreadPool(2);
        clerks.execute(() -> shop.clerk(0));
        clerks.execute(() -> shop.clerk(1));
        new Thread(shop::archivist, "archivist").start();
    }
}
