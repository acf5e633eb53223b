import java.lang.reflect.Method;

/**
 * Truth: virtual threads burn CPU time in `burn`. One of them never leaves its carrier: `down` stands above `burn` as
 * often as the first argument says. Two yield before each `burn`, which brings them back without most of the frames that
 * they had: `resumed` marks them. Needs JDK 21 and two carriers; compiled for JDK 8.
 */
final class Virtual {
    private static volatile long sink = 88172645463325252L;
    private static int depth;

    private Virtual() {}

    static long burn(long x) {
        for (int i = 0; i < 200_000; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        return x;
    }

    static long down(int more, long x) {
        return more <= 1 ? burn(x) + 1 : down(more - 1, x) - 1;
    }

    static long resumed(int more, long x) {
        if (more > 1) {
            return resumed(more - 1, x) - 1;
        }
        Thread.yield();
        return burn(x) + 1;
    }

    static void stay() {
        while (sink != 0) {
            sink = down(depth, sink) | 1;
        }
    }

    static void leave() {
        while (sink != 0) {
            sink = resumed(depth, sink) | 1;
        }
    }

    public static void main(String[] args) throws Exception {
        depth = Integer.parseInt(args[0]);
        for (int i = 0; i < 2_000; i++) {
            sink = down(depth, sink) | 1;
        }
        Method start = Thread.class.getMethod("startVirtualThread", Runnable.class);
        start.invoke(null, (Runnable) Virtual::stay);
        Thread.sleep(1_000);
        for (int i = 0; i < 2; i++) {
            start.invoke(null, (Runnable) Virtual::leave);
        }
        Thread.sleep(1_000);
        Target.ready();
        Thread.sleep(Long.MAX_VALUE);
    }
}
