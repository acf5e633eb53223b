/**
 * Threads of two pools whose names differ behind the 15 bytes that the kernel keeps: `inventory-service-reader-1` and `-2`
 * are in `reads`, `inventory-service-writer-1` and `-2` in `writes`; and one of birds, which the kernel cuts within a
 * character. Meanwhile the collector moves everything in the heap, again and again.
 */
final class Pools {
    private static volatile Object garbage;

    private Pools() {}

    static long burn(long x) {
        for (int i = 0; i < 100_000; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        garbage = new long[1_000];
        return x;
    }

    static void reads() {
        for (long x = 1; x != 0; ) {
            x = burn(x);
        }
    }

    static void writes() {
        for (long x = 2; x != 0; ) {
            x = burn(x);
        }
    }

    public static void main(String[] args) throws Exception {
        for (int i = 1; i <= 2; i++) {
            new Thread(Pools::reads, "inventory-service-reader-" + i).start();
            new Thread(Pools::writes, "inventory-service-writer-" + i).start();
        }
        new Thread(Pools::reads, "\ud83e\udd86\ud83e\udd86\ud83e\udd86\ud83e\udd86 ducks").start();
        Thread.sleep(500);
        Target.ready();
        for (;;) {
            Object[] kept = new Object[1_000];
            for (int i = 0; i < kept.length; i++) {
                kept[i] = new byte[1_000];
            }
            garbage = kept;
            System.gc();
            Thread.sleep(20);
        }
    }
}
