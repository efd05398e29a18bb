package dev.penstock.jms;

import java.io.IOException;
import java.net.BindException;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/** A broker process of a test's own, on a port that stays the same over restarts, for tests that kill or configure theirs. */
public final class OwnBroker implements AutoCloseable {
    /** Only a test that fails waits this long: on a busy machine a start takes many times what it takes on an idle one. */
    private static final long WITHIN_SECONDS = 300;

    // Below what the system gives to whoever asks for any port, or connects: /proc/sys/net/ipv4/ip_local_port_range.
    private static final int FIRST_PORT = 20_000;
    private static final int PORTS = 10_000;
    private static final Set<Integer> GIVEN = ConcurrentHashMap.newKeySet();

    /** How a broker ends before it is started again. */
    public enum Ending {
        /** As Kubernetes does: SIGTERM, then wait. */
        TERMINATED,
        /** As kill -9 does. */
        KILLED
    }

    private final Path data;
    private final int port;
    private final boolean makesWhatIsNamed;
    private ForkedProcess process;

    /** In development mode: whoever comes gets in, and queues and topics are made when they are first named. */
    public OwnBroker(Path data) throws IOException {
        this(data, true, "");
    }

    /**
     * With further settings (YAML, as docs/reference/configuration.md has them).
     *
     * @param makesWhatIsNamed false: only what {@link #declare} makes is there, and users are those of the settings
     */
    OwnBroker(Path data, boolean makesWhatIsNamed, String settings) throws IOException {
        this.data = data;
        this.makesWhatIsNamed = makesWhatIsNamed;
        this.port = freePort();
        String small = settings.contains("maxMessageBytes") ? "" : "log: {segmentBytes: 8388608}\nmaxMessageBytes: 2097152\n";
        Files.writeString(config(), "management: {address: 'unix:" + socket() + "'}\n" + small + settings);
    }

    /**
     * A port that this process has given to nobody before, and the system gives to nobody by itself.
     *
     * <p>While a broker restarts its port is free: a test here, or any program that listens or connects meanwhile, would get it.
     */
    static int freePort() throws IOException {
        while (true) {
            int port = FIRST_PORT + ThreadLocalRandom.current().nextInt(PORTS);
            if (GIVEN.add(port)) {
                try (ServerSocket free = new ServerSocket(port)) {
                    return free.getLocalPort();
                } catch (BindException taken) {
                    continue;
                }
            }
        }
    }

    private Path config() {
        return data.resolveSibling("broker.yaml");
    }

    private Path socket() {
        return data.resolveSibling("management.sock");
    }

    private Path log() {
        return data.resolveSibling("broker.log");
    }

    /** Starts the process; returns when its AMQP port answers. */
    public void start() throws IOException {
        List<String> arguments = new ArrayList<>(List.of(
                "broker", "--data", data.toString(), "--config", config().toString(), "--listen", address()));
        if (makesWhatIsNamed) {
            arguments.add("--dev");
        }
        process = new ForkedProcess(log(), "penstock", arguments);
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WITHIN_SECONDS);
        while (!listening()) {
            if (process.ends(20) || System.nanoTime() > deadline) {
                throw new IOException("the broker did not start: " + Files.readString(log()));
            }
        }
    }

    /** Ends the process in the way named, and starts it again on the same data folder and port. */
    public void restart(Ending ending) throws IOException {
        switch (ending) {
            case KILLED -> kill();
            case TERMINATED -> {
                int code = terminate();
                if (code != 0) {
                    throw new IOException("exit code " + code + ": " + Files.readString(log()));
                }
            }
        }
        start();
    }

    /** Sends requests over {@code $management}: a YAML list of {operation (CREATE), type, name, body}. */
    void declare(String requests) throws IOException {
        Path file = Files.writeString(data.resolveSibling("requests.yaml"), requests);
        Path output = Files.createTempFile(file.getParent(), "declare", ".log");
        if (new ForkedProcess(output, "declare", List.of(socket().toString(), file.toString())).await() != 0) {
            throw new IOException(Files.readString(output));
        }
    }

    private boolean listening() {
        try (Socket probe = new Socket("127.0.0.1", port)) {
            return probe.isConnected();
        } catch (IOException refused) {
            return false;
        }
    }

    /** As kill -9 does. */
    void kill() {
        process.kill();
        process.await();
    }

    /** As Kubernetes does: SIGTERM, then wait. */
    int terminate() {
        process.terminate();
        return process.await();
    }

    /** HOST:PORT of its AMQP listener, the same over restarts. */
    public String address() {
        return "127.0.0.1:" + port;
    }

    @Override
    public void close() {
        if (process != null && process.isAlive()) {
            kill();
        }
    }
}
