import java.security.MessageDigest;
import javax.crypto.Cipher;
import javax.crypto.spec.IvParameterSpec;
import javax.crypto.spec.SecretKeySpec;

/**
 * Truth: most of the time is in stubs, hand-written code for ciphers and digests, called by compiled methods that are called
 * by main. Newer JVMs make these stubs while they run already, when their compilers begin. Argument: how many rounds until it
 * is ready and ends.
 */
final class Ciphers {
    private static final byte[] TEXT = new byte[1 << 14];

    private Ciphers() {}

    static int encrypt(Cipher cipher, SecretKeySpec key) throws Exception {
        cipher.init(Cipher.ENCRYPT_MODE, key, new IvParameterSpec(new byte[16]));
        return cipher.doFinal(TEXT)[0];
    }

    public static void main(String[] args) throws Exception {
        SecretKeySpec key = new SecretKeySpec(new byte[16], "AES");
        Cipher cipher = Cipher.getInstance("AES/CBC/NoPadding");
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        int sum = 0;
        for (int round = Integer.parseInt(args[0]); round > 0; round--) {
            for (int i = 0; i < 50; i++) {
                sum += encrypt(cipher, key);
            }
            sum += digest.digest(TEXT)[0];
        }
        Target.say(sum == 0 ? "none" : "ready");
    }
}
