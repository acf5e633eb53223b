/**
 * Truth: of `loops`, 30 % of the work is in the first loop and 70 % in the second, and none at the method's end.
 * No two rounds take equally long, so that they do not keep step with the ticks. The program prints the lines of both,
 * so that no test counts lines by hand. Run with DebugNonSafepoints and `-XX:CompileCommand=dontinline,Lines::loops`.
 * Arguments: how often `loops` runs before it is ready (2,000: compiled), and how many tenths of the work are the first
 * loop's in place of three: in the interpreter the two are not equally fast, see Chains, but no work takes no time.
 */
final class Lines {
    private static int unit = 50_000;
    private static long sink = 88172645463325252L;
    private static int tenths = 3;
    private static int[] marks;

    private Lines() {}

    private static int here() {
        return new Throwable().getStackTrace()[1].getLineNumber();
    }

    static long loops(long x, int[] mark) {
        if (mark != null) mark[0] = here();
        for (int i = 0; i < tenths * unit; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        if (mark != null) mark[1] = here();
        for (int i = 0; i < (10 - tenths) * unit; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        if (mark != null) mark[2] = here();
        return x;
    }

    public static void main(String[] args) {
        marks = new int[3];
        sink = loops(sink, marks);
        Target.say("lines " + marks[0] + " " + marks[1] + " " + marks[2]);
        int rounds = args.length == 0 ? 2_000 : Integer.parseInt(args[0]);
        for (int i = 0; i < rounds; i++) {
            sink = loops(sink, null);
        }
        if (args.length > 1) tenths = Integer.parseInt(args[1]);
        Target.ready();
        while (sink != 0) {
            unit = 20_000 + (int) (sink >>> 48);
            sink = loops(sink, null);
        }
    }
}
