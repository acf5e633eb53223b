import java.io.IOException;

/** What every profiled program does alike: it says when it is warm, and it ends when whoever started it is gone. */
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
            // As good as the end.
        }
        System.exit(0);
    }
}
