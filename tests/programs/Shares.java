/**
 * Truth: burn10, burn20, burn30 and burn40 take 10, 20, 30 and 40 % of the main thread, on any machine: they do 1, 2, 3
 * and 4 times the same work, a chain of dependent operations that no compiler can shorten. No two rounds take equally
 * long: rounds of a millisecond keep step with a clock that ticks each one, which then always finds the same place. Run
 * with `-XX:CompileCommand=dontinline,Shares::burn*`. Argument: how many rounds before it is ready. In the interpreter
 * the four are not equally fast, see Chains.
 */
final class Shares {
    private static int unit;
    private static long sink = 88172645463325252L;

    private Shares() {}

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

    static void round() {
        unit = 20_000 + (int) (sink >>> 48);
        sink = burn40(burn30(burn20(burn10(sink))));
    }

    public static void main(String[] args) {
        // C2 takes a method with loops after 600 calls; the interpreter needs none of them.
        int warm = args.length > 0 ? Integer.parseInt(args[0]) : 1_200;
        for (int i = 0; i < warm; i++) {
            round();
        }
        Target.ready();
        while (sink != 0) {
            round();
        }
    }
}
