/**
 * Truth: as Shares, but everything is inlined into `round`, and the chains differ in depth:
 *
 *   round
 *     burn10                     10 %
 *     twice > burn20             20 %
 *     thrice > inner > burn30    30 %
 *     thrice > other > burn40    40 %
 *
 * Run with `-XX:CompileCommand=inline` for all of them and `dontinline,InlinedShares::round`; with DebugNonSafepoints,
 * since the methods are compiled before the agent attaches.
 */
final class InlinedShares {
    static int unit = 5_000;
    private static long sink = 88172645463325252L;

    private InlinedShares() {}

    static long burn10(long x) {
        int n = unit;
        for (int i = 0; i < n; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        return x;
    }

    static long burn20(long x) {
        int n = 2 * unit;
        for (int i = 0; i < n; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        return x;
    }

    static long burn30(long x) {
        int n = 3 * unit;
        for (int i = 0; i < n; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        return x;
    }

    static long burn40(long x) {
        int n = 4 * unit;
        for (int i = 0; i < n; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        return x;
    }

    static long twice(long x) {
        return burn20(x);
    }

    static long thrice(long x) {
        return other(inner(x));
    }

    static long inner(long x) {
        return burn30(x);
    }

    static long other(long x) {
        return burn40(x);
    }

    static void round() {
        unit = 1_000 + (int) (sink >>> 51);
        sink = thrice(twice(burn10(sink)));
    }

    public static void main(String[] args) {
        for (int i = 0; i < 30_000; i++) {
            round();
        }
        Target.ready();
        while (sink != 0) {
            round();
        }
    }
}
