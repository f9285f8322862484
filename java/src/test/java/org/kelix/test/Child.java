package org.kelix.test;

import static org.kelix.test.Support.bytes;

import org.kelix.Async;
import org.kelix.Cursor;
import org.kelix.Kelix;
import org.kelix.Scan;
import org.kelix.Session;
import org.kelix.Table;
import org.kelix.TableKind;

import java.util.concurrent.CountDownLatch;

/** A process that ends while daemon threads use sessions: `Child ADDRESS return|exit|halt`. */
public final class Child {
    private static final int THREADS = 4;

    private Child() {}

    public static void main(String[] arguments) throws InterruptedException {
        Kelix kelix = Kelix.connect(arguments[0]);
        CountDownLatch busy = new CountDownLatch(THREADS);
        for (int number = 0; number < THREADS; number++) {
            byte[] key = bytes("k" + number);
            Thread thread =
                    new Thread(
                            () -> {
                                Session session = kelix.session();
                                Table table = session.create("t", TableKind.HASH);
                                for (int turn = 0; ; turn++) {
                                    session.put(table, key, key);
                                    session.get(table, key);
                                    session.scan(table, Scan.all());
                                    if (turn == 20) {
                                        busy.countDown();
                                    }
                                }
                            });
            thread.setDaemon(true);
            thread.start();
        }
        Async async = kelix.async();
        Session session = kelix.session();
        Table table = session.create("t", TableKind.HASH);
        Cursor cursor = session.cursor(table, Scan.all());
        cursor.next(1);
        busy.await();
        for (int index = 0; index < 1000; index++) {
            async.put(table, bytes("a" + index), bytes("v"));
        }
        switch (arguments[1]) {
            case "exit" -> System.exit(3);
            case "halt" -> Runtime.getRuntime().halt(4);
            default -> System.out.println("done");
        }
    }
}
