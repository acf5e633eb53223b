import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.locks.ReentrantLock;

/** Threads that wait in known ways: for a monitor, a fair lock, a timer, work, and for ever. */
public class Waits {
    static final Object MONITOR = new Object();
    static final ReentrantLock LOCK = new ReentrantLock(true);

    static void enterMonitor() {
        synchronized (MONITOR) {
            nap(4);
        }
    }

    static void takeLock() {
        LOCK.lock();
        try {
            nap(4);
        } finally {
            LOCK.unlock();
        }
    }

    static void nap(int ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    static void waitForEver() {
        try {
            new CountDownLatch(1).await();
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    static void start(String name, Runnable step) {
        Thread thread = new Thread(() -> {
            while (true) {
                step.run();
            }
        }, name);
        thread.setDaemon(true);
        thread.start();
    }

    public static void main(String[] args) throws Exception {
        for (int i = 0; i < 2; i++) {
            start("monitor", Waits::enterMonitor);
            start("lock", Waits::takeLock);
        }
        start("ever", Waits::waitForEver);
        ExecutorService pool = Executors.newFixedThreadPool(2);
        Runnable feed = () -> {
            nap(20);
            pool.submit(() -> { });
        };
        start("feeder", feed);
        System.out.println("ready");
        System.in.read();
        System.exit(0);
    }
}
