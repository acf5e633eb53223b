import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.function.LongUnaryOperator;

/**
 * Truth: eight methods have equal parts of the time, and each has a name of its own: those of classes that look like
 * what generators make, and of methods whose names are the longest that there can be and differ at their ends only.
 */
public final class Lookalikes {
    private static long sink = 88172645463325252L;

    private Lookalikes() {}

    /** Rounds of a call. No two rounds of all take equally long, so that they do not keep step with the ticks. */
    private static int unit = 100_000;

    /** Burns; for the classes of other loaders too. */
    public static long burn(long x) {
        int n = unit;
        for (int i = 0; i < n; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        return x;
    }

    static final class Proxy1 implements LongUnaryOperator {
        @Override
        public long applyAsLong(long x) {
            return burn(x);
        }
    }

    static final class Proxy2 implements LongUnaryOperator {
        @Override
        public long applyAsLong(long x) {
            return burn(x);
        }
    }

    static final class ByteBuddy$Alpha implements LongUnaryOperator {
        @Override
        public long applyAsLong(long x) {
            return burn(x);
        }
    }

    static final class ByteBuddy$Beta implements LongUnaryOperator {
        @Override
        public long applyAsLong(long x) {
            return burn(x);
        }
    }

    /** Its method `called` gets another name before it is loaded. */
    public static final class Template implements LongUnaryOperator {
        /** Made by reflection. */
        public Template() {}

        @Override
        public long applyAsLong(long x) {
            return called(x);
        }

        static long called(long x) {
            return Lookalikes.burn(x);
        }
    }

    private static final class Renaming extends ClassLoader {
        Renaming() {
            super(Lookalikes.class.getClassLoader());
        }

        LongUnaryOperator named(String method) throws Exception {
            byte[] code = renamed(method);
            Class<?> type = defineClass("Lookalikes$Template", code, 0, code.length);
            return (LongUnaryOperator) type.getDeclaredConstructor().newInstance();
        }
    }

    /** The class file of the template, with another text in the place of this constant. */
    private static byte[] renamed(String method) throws Exception {
        byte[] constant = "\1\0\6called".getBytes(StandardCharsets.ISO_8859_1);
        byte[] code = new byte[1 << 16];
        int length = 0;
        try (InputStream in = Lookalikes.class.getResourceAsStream("Lookalikes$Template.class")) {
            for (int n = 0; n >= 0; n = new DataInputStream(in).read(code, length, code.length - length)) {
                length += n;
            }
        }
        int at = 0;
        while (!Arrays.equals(Arrays.copyOfRange(code, at, at + constant.length), constant)) {
            at++;
        }
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        DataOutputStream data = new DataOutputStream(out);
        data.write(code, 0, at + 1);
        data.writeUTF(method);
        data.write(code, at + constant.length, length - at - constant.length);
        return out.toByteArray();
    }

    public static void main(String[] args) throws Exception {
        char[] letters = new char[65_000];
        Arrays.fill(letters, 'x');
        String longest = new String(letters);
        LongUnaryOperator[] all = {
            new Proxy1(), new Proxy2(), new ByteBuddy$Alpha(), new ByteBuddy$Beta(), new Script1(), new Script2(),
            new Renaming().named(longest + "One"), new Renaming().named(longest + "Two"),
        };
        for (int i = 0; sink != 0; i++) {
            unit = 50_000 + (int) (sink >>> 47);
            for (LongUnaryOperator one : all) {
                sink = one.applyAsLong(sink);
            }
            if (i == 2_000) {
                Target.ready();
            }
        }
    }
}

final class Script1 implements LongUnaryOperator {
    @Override
    public long applyAsLong(long x) {
        return Lookalikes.burn(x);
    }
}

final class Script2 implements LongUnaryOperator {
    @Override
    public long applyAsLong(long x) {
        return Lookalikes.burn(x);
    }
}
