import java.util.Random;
import java.util.concurrent.CyclicBarrier;

/**
 * Truth: of the CPU time of the four workers, worker-1 to worker-4 take 10, 20, 30 and 40 %: each round they do 1, 2, 3
 * and 4 times the same work and wait for each other, so the scheduler has no say. No two rounds take equally long, so
 * that they do not keep step with the ticks.
 */
final class Threads {
    private static int unit = 500_000;

    private Threads() {}

    static long burn(long x, int units) {
        int n = units * unit;
        for (int i = 0; i < n; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        return x;
    }

    private static void work(CyclicBarrier barrier, int units) {
        try {
            long x = units;
            while (x != 0) {
                x = burn(x, units);
                barrier.await();
            }
        } catch (Exception broken) {
            throw new IllegalStateException(broken);
        }
    }

    public static void main(String[] args) throws Exception {
        long x = 1;
        for (int i = 0; i < 200; i++) {
            x = burn(x, 1);
        }
        Random lengths = new Random(1);
        CyclicBarrier barrier = new CyclicBarrier(4, () -> unit = 250_000 + lengths.nextInt(500_000));
        Thread last = null;
        for (int i = 1; i <= 4; i++) {
            int units = i;
            last = new Thread(() -> work(barrier, units), "worker-" + i);
            last.start();
        }
        Target.ready();
        last.join();
    }
}
