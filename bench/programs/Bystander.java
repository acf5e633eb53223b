import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;

/** Repeats the same work on one thread; prints the CPU time of each piece, in nanoseconds. */
public final class Bystander {
    private Bystander() {}

    public static void main(String[] args) {
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        long before = threads.getCurrentThreadCpuTime();
        for (long sum = 0; ; ) {
            sum += piece();
            long now = threads.getCurrentThreadCpuTime();
            System.out.println((now - before) + " " + (sum & 1));
            before = now;
        }
    }

    /** Some tens of milliseconds of hashing, sorting and text. */
    private static long piece() {
        Map<String, Integer> counts = new HashMap<>();
        long[] numbers = new long[100_000];
        long seed = 42;
        for (int i = 0; i < numbers.length; i++) {
            seed = seed * 6364136223846793005L + 1442695040888963407L;
            numbers[i] = seed;
            counts.merge("key" + (seed >>> 52), 1, Integer::sum);
        }
        Arrays.sort(numbers);
        return numbers[numbers.length / 2] + counts.size();
    }
}
