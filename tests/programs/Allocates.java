import com.sun.management.ThreadMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;

/**
 * Allocates objects of one class in each of four methods, in rounds, and prints how many bytes each of them allocated, as
 * the JVM counts them. The measured rounds begin with the first byte of standard input.
 */
public final class Allocates {
    private static final int ROUNDS = 8;
    private static final int MIB = 1 << 20;

    /** Keeps compilers from removing allocations. */
    static volatile Object sink;

    private static final ThreadMXBean THREADS = (ThreadMXBean) ManagementFactory.getThreadMXBean();
    private static final long[] BYTES = new long[4];

    static final class Node {
        long value;
        Object left;
        Object right;
    }

    private Allocates() {}

    static void ints() {
        for (int i = 0; i < 16 * MIB / 4112; i++) {
            sink = new int[1024];
        }
    }

    static void bytes() {
        for (int i = 0; i < 32 * MIB / 100_016; i++) {
            sink = new byte[100_000];
        }
    }

    static void nodes() {
        for (int i = 0; i < 8 * MIB / 32; i++) {
            sink = new Node();
        }
    }

    /** Larger than any TLAB. */
    static void longs() {
        for (int i = 0; i < 8; i++) {
            sink = new long[MIB];
        }
    }

    static void round() {
        long id = Thread.currentThread().getId();
        long begin = THREADS.getThreadAllocatedBytes(id);
        ints();
        begin = note(0, id, begin);
        bytes();
        begin = note(1, id, begin);
        nodes();
        begin = note(2, id, begin);
        longs();
        note(3, id, begin);
    }

    private static long note(int method, long id, long begin) {
        long end = THREADS.getThreadAllocatedBytes(id);
        BYTES[method] += end - begin;
        return end;
    }

    public static void main(String[] args) throws IOException {
        for (int i = 0; i < ROUNDS; i++) {
            round();
        }
        Target.say("ready");
        if (System.in.read() < 0) {
            return;
        }
        java.util.Arrays.fill(BYTES, 0);
        for (int i = 0; i < ROUNDS; i++) {
            round();
        }
        Target.say("allocated " + BYTES[0] + " " + BYTES[1] + " " + BYTES[2] + " " + BYTES[3]);
        // Until the test ends it.
        while (System.in.read() >= 0) {
            continue;
        }
    }
}
