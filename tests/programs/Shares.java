/**
 * Truth: burn10, burn20, burn30 and burn40 take 10, 20, 30 and 40 % of the main thread, on any machine: they do 1, 2, 3
 * and 4 times the same work, a chain of dependent operations that no compiler can shorten. Run with
 * `-XX:CompileCommand=dontinline,Shares::burn*`.
 */
final class Shares {
    private static final int UNIT = 50_000;
    private static long sink = 88172645463325252L;

    private Shares() {}

    static long burn10(long x) {
        for (int i = 0; i < UNIT; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        return x;
    }

    static long burn20(long x) {
        for (int i = 0; i < 2 * UNIT; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        return x;
    }

    static long burn30(long x) {
        for (int i = 0; i < 3 * UNIT; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        return x;
    }

    static long burn40(long x) {
        for (int i = 0; i < 4 * UNIT; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        return x;
    }

    static void round() {
        sink = burn40(burn30(burn20(burn10(sink))));
    }

    public static void main(String[] args) {
        for (int i = 0; i < 2_000; i++) {
            round();
        }
        Target.ready();
        while (sink != 0) {
            round();
        }
    }
}
