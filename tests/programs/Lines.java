/**
 * Truth: of `loops`, 30 % of the time falls on the first loop and 70 % on the second, and none on the method's end.
 * The program prints the lines of both, so that nobody counts lines by hand. Run with DebugNonSafepoints and
 * `-XX:CompileCommand=dontinline,Lines::loops`.
 */
final class Lines {
    private static final int UNIT = 50_000;
    private static long sink = 88172645463325252L;
    private static int[] marks;

    private Lines() {}

    private static int here() {
        return new Throwable().getStackTrace()[1].getLineNumber();
    }

    static long loops(long x, int[] mark) {
        if (mark != null) mark[0] = here();
        for (int i = 0; i < 3 * UNIT; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        if (mark != null) mark[1] = here();
        for (int i = 0; i < 7 * UNIT; i++) {
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
        for (int i = 0; i < 2_000; i++) {
            sink = loops(sink, null);
        }
        Target.ready();
        while (sink != 0) {
            sink = loops(sink, null);
        }
    }
}
