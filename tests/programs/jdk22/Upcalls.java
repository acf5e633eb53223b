import java.lang.foreign.AddressLayout;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;

/**
 * Truth: nearly all the time is under `sort`, in libc's qsort and in `compare`, which that calls: from Java to native code
 * and back, without JNI. For JDK 22 and later.
 */
final class Upcalls {
    private static final int NUMBERS = 4096;

    private Upcalls() {}

    static int compare(MemorySegment a, MemorySegment b) {
        return Integer.compare(a.get(ValueLayout.JAVA_INT, 0), b.get(ValueLayout.JAVA_INT, 0));
    }

    static void sort(MethodHandle qsort, MemorySegment numbers, MemorySegment compare) throws Throwable {
        qsort.invokeExact(numbers, (long) NUMBERS, 4L, compare);
    }

    public static void main(String[] args) throws Throwable {
        Linker linker = Linker.nativeLinker();
        FunctionDescriptor takes = FunctionDescriptor.ofVoid(
                ValueLayout.ADDRESS, ValueLayout.JAVA_LONG, ValueLayout.JAVA_LONG, ValueLayout.ADDRESS);
        MethodHandle qsort = linker.downcallHandle(linker.defaultLookup().find("qsort").get(), takes);
        AddressLayout number = ValueLayout.ADDRESS.withTargetLayout(ValueLayout.JAVA_INT);
        MethodType type = MethodType.methodType(int.class, MemorySegment.class, MemorySegment.class);
        MethodHandle method = MethodHandles.lookup().findStatic(Upcalls.class, "compare", type);
        FunctionDescriptor compares = FunctionDescriptor.of(ValueLayout.JAVA_INT, number, number);
        MemorySegment compare = linker.upcallStub(method, compares, Arena.global());
        MemorySegment numbers = Arena.global().allocate(4 * NUMBERS);
        long x = 88172645463325252L;
        for (int round = 0; ; round++) {
            if (round == 200) {
                Target.ready();
            }
            for (int i = 0; i < NUMBERS; i++) {
                x ^= x << 13;
                x ^= x >>> 7;
                x ^= x << 17;
                numbers.setAtIndex(ValueLayout.JAVA_INT, i, (int) x);
            }
            sort(qsort, numbers, compare);
        }
    }
}
