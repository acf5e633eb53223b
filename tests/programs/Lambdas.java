import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.function.LongUnaryOperator;

/**
 * Code whose classes the JVM invents and numbers: a capturing lambda, a dynamic proxy, a reflective call (an accessor
 * class up to 17, a method handle later). All end in `burn`; the names above it must be the same in each run. Run with
 * `-XX:CompileCommand=dontinline,Lambdas::burn`, so that the invented frames stand on the stack as callers.
 */
final class Lambdas {
    private static long sink = 88172645463325252L;

    private Lambdas() {}

    /** What the proxy stands in for. */
    public interface Burner {
        /** Burns. */
        long go(long x);
    }

    public static long burn(long x) {
        for (int i = 0; i < 100_000; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        return x;
    }

    static long viaLambda(LongUnaryOperator lambda, long x) {
        return lambda.applyAsLong(x);
    }

    static long viaProxy(Burner proxy, long x) {
        return proxy.go(x);
    }

    static long viaReflection(Method method, long x) throws Exception {
        return (Long) method.invoke(null, x);
    }

    public static void main(String[] args) throws Exception {
        long salt = args.length;
        // Enough for C2, which the interpreter need not wait for; the JVM invents accessors after 15 calls.
        int warm = args.length > 0 ? Integer.parseInt(args[0]) : 5_000;
        LongUnaryOperator lambda = x -> burn(x + salt);
        InvocationHandler handler = (self, method, a) -> burn((Long) a[0]);
        Burner proxy =
                (Burner) Proxy.newProxyInstance(Lambdas.class.getClassLoader(), new Class<?>[] {Burner.class}, handler);
        Method method = Lambdas.class.getMethod("burn", long.class);
        for (int i = 0; sink != 0; i++) {
            sink = viaLambda(lambda, sink);
            sink = viaProxy(proxy, sink);
            sink = viaReflection(method, sink);
            if (i == warm) {
                Target.ready();
            }
        }
    }
}
