import java.io.IOException;

/** Common to all profiled programs: they print when they are warm, and end when their parent is gone. */
final class Target {
    private Target() {}

    /** Prints `ready`; from now on the end of standard input ends the program. */
    static void ready() {
        Thread watch = new Thread(Target::awaitEnd, "stdin");
        watch.setDaemon(true);
        watch.start();
        say("ready");
    }

    /** One line that the test waits for. */
    static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static void awaitEnd() {
        try {
            while (System.in.read() >= 0) {
                continue;
            }
        } catch (IOException closed) {
            // The same as the end of input.
        }
        System.exit(0);
    }
}
