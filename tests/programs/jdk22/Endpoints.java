import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.nio.file.Path;

/**
 * Truth: as in spans.c, each of two threads burns CPU time in span_1, span_2 and span_3, in shares of 1, 2 and 3, and in
 * no_span, 1 more. While a thread is in span_N, its trace context has the span N: all bytes of the trace id are 16 * thread
 * + N, and all bytes of the span id are that plus 128. The argument is the library with the writer, which is called without
 * JNI. For JDK 22 and later.
 */
final class Endpoints {
    private static final int SLICE = 10_000;
    private static final int WARM = 3000;

    private Endpoints() {}

    static long span_1(long x) {
        return burn(x, SLICE);
    }

    static long span_2(long x) {
        return burn(x, 2 * SLICE);
    }

    static long span_3(long x) {
        return burn(x, 3 * SLICE);
    }

    static long no_span(long x) {
        return burn(x, SLICE);
    }

    private static long burn(long x, int rounds) {
        for (int i = 0; i < rounds; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        return x;
    }

    private static MemorySegment record(int id) {
        MemorySegment record = Arena.global().allocate(32);
        record.asSlice(0, 16).fill((byte) id);
        record.asSlice(16, 8).fill((byte) (id + 128));
        record.set(ValueLayout.JAVA_BYTE, 24, (byte) 1);
        return record;
    }

    private static void serve(MethodHandle attach, int thread, boolean saysReady) {
        MemorySegment[] records = {record(16 * thread + 1), record(16 * thread + 2), record(16 * thread + 3)};
        long x = 88172645463325252L;
        try {
            for (int round = 0; ; round++) {
                attach.invokeExact(records[0]);
                x = span_1(x);
                attach.invokeExact(records[1]);
                x = span_2(x);
                attach.invokeExact(records[2]);
                x = span_3(x);
                attach.invokeExact(MemorySegment.NULL);
                x = no_span(x);
                if (saysReady && round == WARM) {
                    Target.ready();
                }
            }
        } catch (Throwable unexpected) {
            throw new AssertionError(unexpected);
        }
    }

    public static void main(String[] args) {
        SymbolLookup library = SymbolLookup.libraryLookup(Path.of(args[0]), Arena.global());
        MemorySegment function = library.find("attach").orElseThrow();
        FunctionDescriptor takes = FunctionDescriptor.ofVoid(ValueLayout.ADDRESS);
        MethodHandle attach = Linker.nativeLinker().downcallHandle(function, takes);
        new Thread(() -> serve(attach, 2, false)).start();
        serve(attach, 1, true);
    }
}
