import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;

/**
 * Truth: that of Shares, in a program that has a file mapped as data, as indexers and search engines have. Arguments: the
 * file, and how often its first page is mapped.
 */
final class Mapped {
    private static final List<ByteBuffer> KEPT = new ArrayList<>();

    private Mapped() {}

    public static void main(String[] args) throws IOException {
        Path file = Paths.get(args[0]);
        try (FileChannel channel = FileChannel.open(file, StandardOpenOption.READ)) {
            for (int i = 0; i < Integer.parseInt(args[1]); i++) {
                KEPT.add(channel.map(FileChannel.MapMode.READ_ONLY, 0, 4096));
            }
        }
        Shares.main(new String[] {"600"});
    }
}
