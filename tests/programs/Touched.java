import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.util.concurrent.locks.LockSupport;

/**
 * Each round touches ten new pages in touch10 and thirty in touch30: pages of a file that is mapped for this process
 * alone, which the kernel copies one by one. After as many rounds as it takes to compile both, the measured ones begin
 * when the file of the first argument is there; the second one is their number.
 */
final class Touched {
    private static final int PAGE = 4096;
    private static final int WARM = 30_000;

    private Touched() {}

    static int touch10(MappedByteBuffer pages, int at) {
        int end = at + 10 * PAGE;
        for (int i = at; i < end; i += PAGE) {
            pages.put(i, (byte) 1);
        }
        return end;
    }

    static int touch30(MappedByteBuffer pages, int at) {
        int end = at + 30 * PAGE;
        for (int i = at; i < end; i += PAGE) {
            pages.put(i, (byte) 1);
        }
        return end;
    }

    public static void main(String[] args) throws IOException {
        File go = new File(args[0]);
        int rounds = Integer.parseInt(args[1]);
        MappedByteBuffer warm = map(1);
        for (int i = 0; i < WARM; i++) {
            touch30(warm, touch10(warm, 0));
        }
        MappedByteBuffer pages = map(rounds);
        Target.ready();
        while (!go.exists()) {
            LockSupport.parkNanos(1_000_000);
        }
        int at = 0;
        for (int i = 0; i < rounds; i++) {
            at = touch30(pages, touch10(pages, at));
        }
        Target.say("touched");
        while (true) {
            LockSupport.park();
        }
    }

    private static MappedByteBuffer map(int rounds) throws IOException {
        File file = File.createTempFile("touched", null);
        try (RandomAccessFile open = new RandomAccessFile(file, "rw")) {
            open.setLength(40L * PAGE * rounds);
            return open.getChannel().map(FileChannel.MapMode.PRIVATE, 0, 40L * PAGE * rounds);
        } finally {
            file.delete();
        }
    }
}
