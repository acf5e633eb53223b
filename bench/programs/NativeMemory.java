import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.lang.reflect.Field;
import java.util.SplittableRandom;

/**
 * Allocates and frees native memory, on demand: the mode `allocs` of occur.c, in Java.
 *
 * Each line of the input is a number of seconds. For each line the program prints the number of allocations, and wall
 * and CPU time in nanoseconds.
 */
public final class NativeMemory {
    private static final int BETWEEN_CLOCKS = 1024;
    private static final int BLOCKS = 64;
    private static final long SMALLEST = 64;
    private static final int SIZES = 9;
    private static final int FRAMES = 20;
    // javac --release 8 knows no sun.misc.Unsafe. Constant handles are as fast as calls.
    private static final MethodHandle ALLOCATE = unsafe("allocateMemory", MethodType.methodType(long.class, long.class));
    private static final MethodHandle FREE = unsafe("freeMemory", MethodType.methodType(void.class, long.class));

    private static final long[] blocks = new long[BLOCKS];
    private static final SplittableRandom random = new SplittableRandom(42);
    private static final ThreadMXBean threads = ManagementFactory.getThreadMXBean();

    private NativeMemory() {}

    public static void main(String[] args) throws Throwable {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(descend(Double.parseDouble(line), FRAMES));
        }
    }

    private static String descend(double seconds, int frames) throws Throwable {
        return frames > 0 ? descend(seconds, frames - 1) : work(seconds);
    }

    private static String work(double seconds) throws Throwable {
        long begin = System.nanoTime();
        long cpu = threads.getCurrentThreadCpuTime();
        long count = 0;
        long wall;
        do {
            allocations();
            count += BETWEEN_CLOCKS;
            wall = System.nanoTime() - begin;
        } while (wall < seconds * 1e9);
        return count + " " + wall + " " + (threads.getCurrentThreadCpuTime() - cpu);
    }

    private static void allocations() throws Throwable {
        for (int i = 0; i < BETWEEN_CLOCKS; i++) {
            int at = i % BLOCKS;
            FREE.invokeExact(blocks[at]);
            blocks[at] = (long) ALLOCATE.invokeExact(SMALLEST << random.nextInt(SIZES));
        }
    }

    private static MethodHandle unsafe(String name, MethodType type) {
        try {
            Class<?> unsafe = Class.forName("sun.misc.Unsafe");
            Field only = unsafe.getDeclaredField("theUnsafe");
            only.setAccessible(true);
            return MethodHandles.lookup().findVirtual(unsafe, name, type).bindTo(only.get(null));
        } catch (ReflectiveOperationException e) {
            throw new ExceptionInInitializerError(e);
        }
    }
}
