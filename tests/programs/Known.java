import java.io.FileInputStream;
import java.io.IOException;
import java.util.Arrays;
import java.util.Scanner;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;
import java.util.stream.LongStream;
import java.util.stream.Stream;

/**
 * Several truths in one JVM, for machines on which starting a JVM takes long. Run it with `-Xbatch`. After everything
 * is compiled, the thread `shares` is in `round` and the inlined chains of InlinedShares. The thread `deep` sometimes
 * does what Deep does, as deep as the first argument says. On an emulated CPU two copies of a loop may take different
 * times, so the program measures the truth itself. Again and again it prints `truth` and the nanoseconds that calls of
 * burn10, burn20, burn30 and burn40 took in some rounds: the sums, and then the sums as if all calls had been as fast
 * as the fast ones. When the host stops the guest, the clock goes on but no CPU of the guest ticks, so some of the
 * first sums are too long. The second sums are too short for code that is not always equally fast. With a second
 * argument the program ends when `shares` has used so many seconds of CPU time.
 */
final class Known {
    /** After so many rounds of calls everything is compiled: each counts as 17 calls and loops, of 15,000 at most. */
    private static final int WARM = 3_000;
    private static final int WARM_DEEP = 100;
    private static final int SHORT_UNIT = 50;
    private static final int TIMES = 4;
    private static final int MEASURED = 75;

    private Known() {}

    static long third(long x) {
        return InlinedShares.inner(x);
    }

    static long fourth(long x) {
        return InlinedShares.other(x);
    }

    private static long sink = 88172645463325252L;
    private static long last;
    private static final long[][] TOOK = new long[4][MEASURED];
    private static int measured;

    /** Reading the clock is a system call here, so it is rarely read. */
    static void took(int part) {
        long now = System.nanoTime();
        TOOK[part][measured] = now - last;
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
            measured = i % MEASURED;
            round(times);
        }
    }

    private static long undisturbed(long[] took) {
        Arrays.sort(took);
        return took[took.length / 10];
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
        InlinedShares.unit = SHORT_UNIT;
        for (Runnable work : new Runnable[] {() -> shares(WARM, TIMES), () -> deep(WARM_DEEP, depth, 1_000)}) {
            new Thread(null, () -> {
                work.run();
                warm.countDown();
            }, "warm-up", 64 << 20).start();
        }
        warm.await();
        double limit = args.length > 1 ? Double.parseDouble(args[1]) : Double.POSITIVE_INFINITY;
        Thread shares = start("shares", () -> {
            while (seconds() < limit) {
                // Rounds that are all equally long may keep step with a clock that ticks, which then finds one place.
                InlinedShares.unit = 4_000 + (int) (sink >>> 53);
                shares(MEASURED, TIMES);
                LongStream all = Arrays.stream(TOOK).mapToLong(took -> Arrays.stream(took).sum());
                LongStream fast = Arrays.stream(TOOK).mapToLong(took -> took.length * undisturbed(took));
                Stream<String> both = LongStream.concat(all, fast).mapToObj(took -> " " + took);
                Target.say(both.collect(Collectors.joining("", "truth", "")));
            }
        });
        start("deep", () -> {
            while (true) {
                long begin = System.nanoTime();
                deep(1, depth, 500_000);
                // Few samples show whether its stacks are whole, and `shares` needs the CPUs of a busy host.
                LockSupport.parkNanos(3 * (System.nanoTime() - begin));
            }
        });
        Target.ready();
        shares.join();
        System.exit(0);
    }
}
