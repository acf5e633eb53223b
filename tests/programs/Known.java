import java.io.FileInputStream;
import java.io.IOException;
import java.util.Scanner;
import java.util.concurrent.CountDownLatch;

/**
 * Several truths in one JVM, for machines on which starting a JVM takes long. After everything is compiled the thread
 * `shares` stands in `round` and the chains of InlinedShares that it inlines, and the thread `deep` does what Deep does,
 * as deep as the first argument says. An emulated CPU takes its time for each instruction, and no two copies of a loop
 * need have the same, so the program measures the truth itself: `truth` and the nanoseconds that burn10, burn20, burn30
 * and burn40 took so far, printed again and again. A second argument ends the program when `shares` has used so many seconds of CPU time.
 */
final class Known {
    private static final int ROUNDS = 1_500;
    private static final int TIMES = 20;

    private Known() {}

    static long third(long x) {
        return InlinedShares.inner(x);
    }

    static long fourth(long x) {
        return InlinedShares.other(x);
    }

    private static long sink = 88172645463325252L;
    private static long last;
    private static final long[] TOOK = new long[4];

    /** A look at the clock is a system call here, so there are few. */
    static void took(int part) {
        long now = System.nanoTime();
        TOOK[part] += now - last;
        last = now;
    }

    static void round(int times) {
        long x = sink;
        last = System.nanoTime();
        for (int i = 0; i < times; i++) {
            x = InlinedShares.burn10(x);
        }
        took(0);
        for (int i = 0; i < times; i++) {
            x = InlinedShares.twice(x);
        }
        took(1);
        for (int i = 0; i < times; i++) {
            x = third(x);
        }
        took(2);
        for (int i = 0; i < times; i++) {
            x = fourth(x);
        }
        took(3);
        sink = x;
    }

    static void shares(int rounds, int times) {
        for (int i = 0; i < rounds; i++) {
            round(times);
        }
    }

    static void deep(int rounds, int depth, int work) {
        long x = 88172645463325252L;
        for (int i = 0; i < rounds; i++) {
            x = Deep.down(depth, work, x) | 1;
        }
    }

    private static Thread start(String name, Runnable work) {
        Thread thread = new Thread(null, work, name, 64 << 20);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    /** CPU time of the calling thread. */
    private static double seconds() {
        try (Scanner stat = new Scanner(new FileInputStream("/proc/thread-self/schedstat"), "US-ASCII")) {
            return stat.nextLong() / 1e9;
        } catch (IOException gone) {
            throw new IllegalStateException(gone);
        }
    }

    public static void main(String[] args) throws InterruptedException {
        int depth = Integer.parseInt(args[0]);
        CountDownLatch warm = new CountDownLatch(2);
        for (Runnable work : new Runnable[] {() -> shares(ROUNDS, 1), () -> deep(ROUNDS, depth, 1_000)}) {
            new Thread(null, () -> {
                work.run();
                warm.countDown();
            }, "warm-up", 64 << 20).start();
        }
        warm.await();
        double limit = args.length > 1 ? Double.parseDouble(args[1]) : Double.POSITIVE_INFINITY;
        Thread shares = start("shares", () -> {
            java.util.Arrays.fill(TOOK, 0);
            while (seconds() < limit) {
                shares(ROUNDS / TIMES / 4, TIMES);
                Target.say("truth " + TOOK[0] + " " + TOOK[1] + " " + TOOK[2] + " " + TOOK[3]);
            }
        });
        start("deep", () -> {
            while (true) {
                deep(ROUNDS, depth, 500_000);
            }
        });
        Target.ready();
        shares.join();
        System.exit(0);
    }
}
