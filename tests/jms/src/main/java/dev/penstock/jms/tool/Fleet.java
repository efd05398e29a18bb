package dev.penstock.jms.tool;

import jakarta.jms.JMSException;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;

/**
 * Runs many clients in one process, each on a connection of its own: a process for each would cost far more than what they do.
 *
 * <p>Options: those of {@link Access}. One command per line of standard input, words separated by blanks: {@code feed NAME --option value ...}
 * ({@link Feed}), {@code work NAME --option value ...} ({@link Worker}), {@code stop NAME}, which closes that client in good order.
 * Events: {@code ready NAME} once it is connected, {@code failed NAME REASON}, and those of Feed. Ends when its standard input does.
 */
public final class Fleet {
    /** One client: it connects, says that it is ready, and goes on until it is closed. */
    interface Client {
        void run() throws Exception;

        void close() throws JMSException;
    }

    private final String[] access;
    private final Map<String, Client> clients = new HashMap<>();

    private Fleet(String... access) {
        this.access = access;
    }

    /** Exit code 0 at the end of the input. */
    public static void main(String[] arguments) throws Exception {
        Fleet fleet = new Fleet(arguments);
        try (BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                fleet.obey(line.split(" "));
            }
        }
        System.exit(0);
    }

    private void obey(String... words) throws Exception {
        String name = words[1];
        if (words[0].equals("stop")) {
            clients.remove(name).close();
            return;
        }
        String[] own = Arrays.copyOfRange(words, 2, words.length);
        String[] all = Arrays.copyOf(access, access.length + own.length);
        System.arraycopy(own, 0, all, access.length, own.length);
        Options options = new Options(all);
        Client client =
                switch (words[0]) {
                    case "feed" -> new Feed(name, options);
                    case "work" -> new Worker(name, options);
                    default -> throw new IllegalArgumentException("there is no command " + words[0]);
                };
        clients.put(name, client);
        Thread thread = new Thread(() -> follow(name, client), name);
        thread.setDaemon(true);
        thread.start();
    }

    private static void follow(String name, Client client) {
        try {
            client.run();
        } catch (Exception failure) {
            Report.event("failed", name, Report.reason(failure));
        }
    }
}
