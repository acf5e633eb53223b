import java.io.File;
import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.util.concurrent.locks.LockSupport;

/**
 * Collects garbage as often as the second argument says, when the file of the first argument is there. Then it says how many
 * collections the JVM counts for them, and how many milliseconds.
 */
final class Collected {
    /** Live objects, so that a collection takes some milliseconds. */
    private static final Object[][] LIVE = new Object[200][2000];

    private Collected() {}

    private static long[] counted() {
        long[] sums = new long[2];
        for (GarbageCollectorMXBean collector : ManagementFactory.getGarbageCollectorMXBeans()) {
            sums[0] += collector.getCollectionCount();
            sums[1] += collector.getCollectionTime();
        }
        return sums;
    }

    public static void main(String[] args) {
        File go = new File(args[0]);
        int times = Integer.parseInt(args[1]);
        for (Object[] objects : LIVE) {
            for (int i = 0; i < objects.length; i++) {
                objects[i] = new byte[16];
            }
        }
        Target.ready();
        while (!go.exists()) {
            LockSupport.parkNanos(1_000_000);
        }
        long[] before = counted();
        for (int i = 0; i < times; i++) {
            System.gc();
        }
        long[] after = counted();
        Target.say("collected " + (after[0] - before[0]) + " " + (after[1] - before[1]));
        while (true) {
            LockSupport.park();
        }
    }
}
