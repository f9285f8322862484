package org.kelix;

import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Arrays;
import java.util.Locale;
import java.util.stream.Collectors;

/** Finds the native library, loads it, and makes sure that it is the one of these classes. */
final class Library {
    private static final String PATH = "org.kelix.library";
    private static final String VERSION = load();

    private Library() {}

    /** Loads the library, once. Returns its version. */
    static String version() {
        return VERSION;
    }

    private static String load() {
        String named = System.getProperty(PATH);
        if (named != null) {
            Bridge.load(Path.of(named).toAbsolutePath().toString());
        } else {
            loadFromJar();
        }
        ByteBuffer words = ByteBuffer.allocateDirect(Block.BYTES).order(ByteOrder.nativeOrder());
        Bridge.about(Bridge.address(words));
        int out = Block.OUT * Long.BYTES;
        String names = text(words, out);
        String expected =
                Arrays.stream(Op.values()).map(op -> op + " ").collect(Collectors.joining());
        if (!names.equals(expected)) {
            throw new UnsatisfiedLinkError(
                    "the native library"
                            + (named == null ? "" : " " + named)
                            + " is not the one of these classes: is an older kelix-client.jar on"
                            + " the class path?");
        }
        return text(words, out + 2 * Long.BYTES);
    }

    private static String text(ByteBuffer words, int at) {
        byte[] bytes = new byte[(int) words.getLong(at + Long.BYTES)];
        Bridge.read(words.getLong(at), bytes, 0, bytes.length);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    /** The system and the processor as the jar names them. */
    static String platform() {
        String system = System.getProperty("os.name", "").toLowerCase(Locale.ROOT);
        String processor = System.getProperty("os.arch", "").toLowerCase(Locale.ROOT);
        return system + "-" + (processor.equals("amd64") ? "x86_64" : processor);
    }

    /**
     * Memory-mapped code outlives its file's name, so the file is removed at once, and none is left
     * after a crash.
     */
    private static void loadFromJar() {
        String resource = "/native/" + platform() + "/libkelix_java.so";
        try (InputStream library = Library.class.getResourceAsStream(resource)) {
            if (library == null) {
                throw new UnsatisfiedLinkError(
                        "kelix-client.jar has no native library for "
                                + platform()
                                + ": it runs on linux-x86_64; another library can be named by -D"
                                + PATH
                                + "=PATH");
            }
            Path file =
                    Files.createTempFile(
                            "kelix-java-",
                            ".so",
                            PosixFilePermissions.asFileAttribute(
                                    PosixFilePermissions.fromString("rwx------")));
            try {
                Files.copy(library, file, StandardCopyOption.REPLACE_EXISTING);
                Bridge.load(file.toString());
            } finally {
                Files.delete(file);
            }
        } catch (IOException error) {
            throw (UnsatisfiedLinkError)
                    new UnsatisfiedLinkError(
                                    "the native library cannot be extracted to "
                                            + System.getProperty("java.io.tmpdir")
                                            + " (-Djava.io.tmpdir names another folder, -D"
                                            + PATH
                                            + " the library itself): "
                                            + error)
                            .initCause(error);
        }
    }
}
