package org.kelix.test;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;
import static org.kelix.test.Support.bytes;
import static org.kelix.test.Support.fails;
import static org.kelix.test.Support.until;

import org.junit.AfterClass;
import org.junit.BeforeClass;
import org.junit.Test;
import org.kelix.ErrorKind;
import org.kelix.Frontier;
import org.kelix.Item;
import org.kelix.Kelix;
import org.kelix.NewItem;
import org.kelix.Options;
import org.kelix.Scan;
import org.kelix.Session;
import org.kelix.Table;
import org.kelix.TableKind;
import org.kelix.Walk;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/** What is forgotten comes back, and processes end as they should. */
public class LifetimeTest {
    private static Server server;
    private static Kelix kelix;
    private static Session session;

    @BeforeClass
    public static void serve() {
        server = new Server();
        kelix = Kelix.connect(server.address());
        session = kelix.session();
    }

    @AfterClass
    public static void end() {
        session.close();
        kelix.close();
        server.close();
    }

    /** How many sessions the server has over shared memory. */
    private static int sessions() {
        Matcher matcher =
                Pattern.compile("\"shm\":\\{\"connected\":([0-9]+)").matcher(session.statistics());
        assertTrue(matcher.find());
        return Integer.parseInt(matcher.group(1));
    }

    /** Opens sessions and much else, and forgets them. */
    private static void forget() {
        Kelix own = Kelix.connect(server.address());
        for (int number = 0; number < 8; number++) {
            Session forgotten = own.session();
            Table table = forgotten.create("t", TableKind.HASH);
            forgotten.putItem(table, bytes("k"), new NewItem().link("to", table, bytes("k")));
            forgotten.cursor(table, Scan.all());
            forgotten.walk(table, bytes("k"), Walk.along("to")).next(1);
            forgotten.submitGet(table, bytes("k"), 1);
            new Frontier().addLinks(forgotten.getItem(table, bytes("k")), "to");
        }
    }

    @Test
    public void sessionsThatWereForgottenComeBack() throws InterruptedException {
        int before = sessions();
        forget();
        until(
                "the server has as many sessions as before",
                () -> {
                    System.gc();
                    return sessions() <= before;
                });
    }

    @Test
    public void aForgottenSessionIsGivenBackToThePool() throws InterruptedException {
        try (Kelix own = Kelix.connect(new Options().address(server.address()).sessions(1))) {
            own.session();
            Support.Other other =
                    new Support.Other(
                            () -> {
                                own.session().close();
                                return null;
                            });
            until(
                    "the session comes back",
                    () -> {
                        System.gc();
                        return !other.isAlive();
                    });
            assertEquals(null, other.end());
        }
    }

    /** The memory of this process, in bytes. */
    private static long used() {
        try {
            String words = Files.readString(Path.of("/proc/self/statm"));
            return Long.parseLong(words.split(" ")[1]) * 4096;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    @Test
    public void nativeMemoryThatWasForgottenComesBack() throws Exception {
        Table table = session.create("items", TableKind.HASH);
        NewItem large = new NewItem().bytes("x", new byte[60_000]);
        session.putItem(table, bytes("k"), large.link("to", table, bytes("k")));
        long limit = used() + (250L << 20);
        // Half of these 20,000 items are closed. The others are 600 MB.
        for (int turn = 0; turn < 10; turn++) {
            for (int item = 0; item < 2000; item++) {
                Item read = session.getItem(table, bytes("k"));
                if (item % 2 == 0) {
                    read.close();
                }
            }
            until(
                    "the memory of forgotten items comes back",
                    () -> {
                        System.gc();
                        return used() < limit;
                    });
        }
    }

    /** Runs a program of these tests. Returns its exit code and what it said. */
    private static String child(List<String> options, String program, String... arguments)
            throws Exception {
        String java =
                System.getProperty("java.home") + File.separator + "bin" + File.separator + "java";
        List<String> command = new ArrayList<>(List.of(java, "-XX:ErrorFile=/dev/stderr"));
        command.addAll(options);
        command.addAll(List.of("-cp", System.getProperty("java.class.path"), program));
        command.addAll(List.of(arguments));
        Path said = Files.createTempFile("kelix-java-test-", ".said");
        try {
            Process process =
                    new ProcessBuilder(command)
                            .redirectErrorStream(true)
                            .redirectOutput(said.toFile())
                            .start();
            boolean hasEnded = process.waitFor(60, TimeUnit.SECONDS);
            if (!hasEnded) {
                process.destroyForcibly();
            }
            assertTrue("the child ends: " + Files.readString(said), hasEnded);
            return process.exitValue() + " " + Files.readString(said, StandardCharsets.UTF_8);
        } finally {
            Files.delete(said);
        }
    }

    private static List<String> access() {
        return Runtime.version().feature() < 22
                ? List.of()
                : List.of("--enable-native-access=ALL-UNNAMED");
    }

    @Test
    public void processesEndWhileThreadsAreBusy() throws Exception {
        int before = sessions();
        for (String address : List.of(server.address(), server.tcp())) {
            assertEquals("0 done\n", child(access(), Child.class.getName(), address, "return"));
            assertEquals("3 ", child(access(), Child.class.getName(), address, "exit"));
            assertEquals("4 ", child(access(), Child.class.getName(), address, "halt"));
        }
        until("the server has let go of their sessions", () -> sessions() <= before);
    }

    @Test
    public void anotherProcessorAndAnotherLibraryAreTold() throws Exception {
        List<String> other = new ArrayList<>(access());
        other.add("-Dos.arch=riscv64");
        String said = child(other, Child.class.getName(), server.address(), "return");
        assertTrue(
                said,
                said.startsWith("1 ") && said.contains("no native library for linux-riscv64"));
        List<String> none = new ArrayList<>(access());
        none.add("-Dorg.kelix.library=/nowhere/libkelix_java.so");
        said = child(none, Child.class.getName(), server.address(), "return");
        assertTrue(said, said.startsWith("1 ") && said.contains("/nowhere/libkelix_java.so"));
        List<String> unwritable = new ArrayList<>(access());
        unwritable.add("-Djava.io.tmpdir=/nowhere");
        said = child(unwritable, Child.class.getName(), server.address(), "return");
        assertTrue(said, said.startsWith("1 ") && said.contains("cannot be extracted to /nowhere"));
    }

    @Test
    public void nothingIsLeftInTheFolderForTemporaryFiles() throws Exception {
        Path folder = Files.createTempDirectory("kelix-java-test-");
        List<String> options = new ArrayList<>(access());
        options.add("-Djava.io.tmpdir=" + folder);
        assertEquals("0 done\n", child(options, Child.class.getName(), server.address(), "return"));
        try (Stream<Path> left = Files.list(folder)) {
            assertEquals(List.of(), left.toList());
        }
        Files.delete(folder);
    }

    @Test
    public void anErrorTellsAllThatItKnows() {
        var error = fails(ErrorKind.NO_SUCH_TABLE, () -> session.table("nobody"));
        assertEquals("no such table", error.kind().toString());
        assertTrue(error.getMessage().contains("nobody"));
        assertTrue(!error.operation().isEmpty() && error.neededBytes() == 0 && !error.retry());
    }
}
