/**
 * Truth: the chains burn10 > work, burn20 > work, burn30 > work and burn40 > work take 10, 20, 30 and 40 % of the main
 * thread: they do 1, 2, 3 and 4 times the same work in the same bytecodes. The interpreter takes up to half as long again
 * for a loop as for its copy, depending on where the bytecodes lie in memory. No two rounds take equally long, and each
 * is short, so that a profile of seconds has thousands.
 */
final class Chains {
    private static int unit;
    private static long sink = 88172645463325252L;

    private Chains() {}

    static long work(long x, int n) {
        for (int i = 0; i < n; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        return x;
    }

    static long burn10(long x) {
        return work(x, unit);
    }

    static long burn20(long x) {
        return work(x, 2 * unit);
    }

    static long burn30(long x) {
        return work(x, 3 * unit);
    }

    static long burn40(long x) {
        return work(x, 4 * unit);
    }

    static void round() {
        unit = 600 + (int) (sink >>> 53);
        sink = burn40(burn30(burn20(burn10(sink))));
    }

    public static void main(String[] args) {
        Target.ready();
        while (sink != 0) {
            round();
        }
    }
}
