import java.nio.ByteBuffer;

/** Allocates memory outside of the heap: buffers of known sizes. Begins with the first byte of standard input. */
public final class Direct {
    private static final int BUFFERS = 2000;

    static volatile ByteBuffer sink;
    private static long bytes;

    private Direct() {}

    static void buffers(int count) {
        for (int i = 0; i < count; i++) {
            int size = 10_000 + i % 1000 * 60;
            sink = ByteBuffer.allocateDirect(size);
            bytes += size;
        }
    }

    public static void main(String[] args) throws Exception {
        buffers(10);
        bytes = 0;
        System.out.println("ready");
        System.in.read();
        buffers(BUFFERS);
        System.out.println("allocated " + bytes);
        System.in.read();
    }
}
