/**
 * Truth: `down` stands on the stack exactly as often as the first argument says, under `leaf`, where all the time goes.
 * A second argument says how often it happens before it is ready, for JVMs that need not be warm.
 * Run with `-XX:CompileCommand=dontinline,Deep::*`, so that a Java frame is a frame of the machine's stack.
 */
final class Deep {
    private static long sink = 88172645463325252L;

    private Deep() {}

    static long leaf(long x, int rounds) {
        for (int i = 0; i < rounds; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        return x;
    }

    static long down(int depth, int rounds, long x) {
        return depth <= 1 ? leaf(x, rounds) + depth : down(depth - 1, rounds, x) - depth;
    }

    public static void main(String[] args) {
        int depth = Integer.parseInt(args[0]);
        int warm = args.length > 1 ? Integer.parseInt(args[1]) : 3_000;
        for (int i = 0; i < warm; i++) {
            sink = down(depth, 20_000, sink) | 1;
        }
        Target.ready();
        while (sink != 0) {
            sink = down(depth, 2_000_000, sink) | 1;
        }
    }
}
