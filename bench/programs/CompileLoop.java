import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * Compiles Scala sources with the Scala 3 compiler, again and again, in one JVM.
 *
 * <p>Arguments: directory of the sources, directory for the classes, class path. After each round it prints {@code
 * round N SECONDS CPU_SECONDS}; the CPU time is that of all threads.
 */
public final class CompileLoop {
    private CompileLoop() {}

    /** Runs until it is killed. */
    public static void main(String[] args) throws IOException {
        List<String> sources;
        try (Stream<Path> files = Files.walk(Paths.get(args[0]))) {
            sources = files.map(Path::toString).filter(f -> f.endsWith(".scala")).sorted().collect(Collectors.toList());
        }
        List<String> arguments = new ArrayList<>(Arrays.asList("-d", args[1], "-classpath", args[2], "-nowarn"));
        arguments.addAll(sources);
        String[] compilation = arguments.toArray(new String[0]);
        OperatingSystemMXBean self = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        for (int round = 1; ; round++) {
            long begin = System.nanoTime();
            long used = self.getProcessCpuTime();
            dotty.tools.dotc.reporting.Reporter reporter = new dotty.tools.dotc.Driver().process(compilation);
            if (reporter.hasErrors()) {
                System.out.println("the sources do not compile");
                return;
            }
            used = self.getProcessCpuTime() - used;
            System.out.printf(Locale.ROOT, "round %d %.3f %.3f%n", round, (System.nanoTime() - begin) / 1e9, used / 1e9);
        }
    }
}
