import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;

/**
 * Truth: all the time is in `spin`, a native method of hostile.c, which has built itself a stack of 2,000 frames
 * of compiled code that are expensive to unwind.
 * The argument: the words that are searched for a return address are `readable` or `unreadable` addresses.
 */
final class Hostile {
    private Hostile() {}

    /** Returns its return address if `word` is 0, else never. */
    static native long spin(long word);

    /** An address in the code cache where no code is: before the first code, or reserved for more. */
    static long between(String rights) throws IOException {
        String maps = new String(Files.readAllBytes(Paths.get("/proc/self/maps")), StandardCharsets.US_ASCII);
        for (String line : maps.split("\n")) {
            String[] parts = line.split("[- ]+", 4);
            if (parts[2].startsWith("rwxp")) {
                return rights.equals("readable") ? Long.parseLong(parts[0], 16) + 8 : Long.parseLong(parts[1], 16) + 512;
            }
        }
        throw new IllegalStateException("no code cache");
    }

    public static void main(String[] args) throws Exception {
        System.load(System.getProperty("java.class.path") + "/libhostile.so");
        long where = 0;
        // Until compiled code calls it.
        for (int i = 0; i < 200_000; i++) {
            where |= spin(0);
        }
        Thread.sleep(500);
        for (int i = 0; i < 1_000; i++) {
            where |= spin(0);
        }
        long word = where == 0 ? 0 : between(args[0]);
        Target.ready();
        spin(word);
    }
}
