import com.sun.management.ThreadMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;

/**
 * Allocates objects of one class in each of four methods, in rounds, and prints how many bytes each of them allocated, as
 * the JVM counts them, and how many objects. Each byte of standard input begins measured rounds.
 */
public final class Allocates {
    private static final int ROUNDS = 8;
    private static final int MIB = 1 << 20;

    /** Keeps compilers from removing allocations. */
    static volatile Object sink;

    private static final ThreadMXBean THREADS = (ThreadMXBean) ManagementFactory.getThreadMXBean();
    private static final long[] BYTES = new long[4];
    private static final long[] OBJECTS = new long[4];

    static final class Node {
        long value;
        Object left;
        Object right;
    }

    private Allocates() {}

    static int ints() {
        int count = 16 * MIB / 4112;
        for (int i = 0; i < count; i++) {
            sink = new int[1024];
        }
        return count;
    }

    static int bytes() {
        int count = 32 * MIB / 100_016;
        for (int i = 0; i < count; i++) {
            sink = new byte[100_000];
        }
        return count;
    }

    static int nodes() {
        int count = 8 * MIB / 32;
        for (int i = 0; i < count; i++) {
            sink = new Node();
        }
        return count;
    }

    /** Larger than any TLAB. */
    static int longs() {
        int count = 8;
        for (int i = 0; i < count; i++) {
            sink = new long[MIB];
        }
        return count;
    }

    static void round() {
        long id = Thread.currentThread().getId();
        long begin = THREADS.getThreadAllocatedBytes(id);
        begin = note(0, ints(), id, begin);
        begin = note(1, bytes(), id, begin);
        begin = note(2, nodes(), id, begin);
        note(3, longs(), id, begin);
    }

    private static long note(int method, int objects, long id, long begin) {
        long end = THREADS.getThreadAllocatedBytes(id);
        BYTES[method] += end - begin;
        OBJECTS[method] += objects;
        return end;
    }

    public static void main(String[] args) throws IOException {
        for (int i = 0; i < ROUNDS; i++) {
            round();
        }
        Target.say("ready");
        // Until the test ends it.
        while (System.in.read() >= 0) {
            measure();
        }
    }

    private static void measure() {
        java.util.Arrays.fill(BYTES, 0);
        java.util.Arrays.fill(OBJECTS, 0);
        for (int i = 0; i < ROUNDS; i++) {
            round();
        }
        StringBuilder line = new StringBuilder("allocated");
        for (long[] numbers : new long[][] {BYTES, OBJECTS}) {
            for (long number : numbers) {
                line.append(' ').append(number);
            }
        }
        Target.say(line.toString());
    }
}
