package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import dev.penstock.jms.OwnBroker.Ending;
import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.stream.Stream;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** AMQP over WebSocket, clients that show a certificate, and failover between two addresses. */
@DisplayName("WebSocket, certificates, failover")
class TransportTest extends OwnBrokerCase {
    private static final String PASSWORD = "penstock";

    @ParameterizedTest
    @EnumSource(Ending.class)
    @DisplayName("AMQP over WebSocket: large frames, failover over a restart, and a wrong password")
    void webSocket(Ending ending) throws Exception {
        int port = OwnBroker.freePort();
        startBroker(true, "listeners: [{name: ws, kind: webSocket, address: '127.0.0.1:" + port + "'}]\n");
        String uri = "amqpws://127.0.0.1:" + port;
        Session session = session(open(new JmsConnectionFactory("guest", "guest", "failover:(" + uri + ")?" + FAILOVER)));
        Queue queue = session.createQueue("work");
        String large = "x".repeat(300_000);
        publish(session, queue, "1", large);
        broker.restart(ending);
        MessageConsumer consumer = session.createConsumer(queue);
        assertEquals(List.of("1", large), texts(consumer, 2));
        assertThrows(JMSException.class, () -> open(new JmsConnectionFactory("guest", "wrong", uri)));
    }

    @ParameterizedTest
    @EnumSource(Ending.class)
    @DisplayName("Failover with two addresses: the second serves when the first is gone, with the same data")
    void twoAddresses(Ending ending) throws Exception {
        int second = OwnBroker.freePort();
        startBroker(true, "listeners: [{name: second, address: '127.0.0.1:" + second + "'}]\n");
        String both = "failover:(amqp://127.0.0.1:1,amqp://127.0.0.1:" + second + ",amqp://" + broker.address() + ")?" + FAILOVER;
        Session session = session(open(new JmsConnectionFactory("guest", "guest", both)));
        Queue queue = session.createQueue("work");
        MessageConsumer consumer = session.createConsumer(queue);
        publish(session, queue, "1");
        broker.restart(ending);
        publish(session, queue, "2");
        assertEquals("2", texts(consumer, 2).get(1));
    }

    @Test
    @DisplayName("EXTERNAL: the certificate's name is the user; without one the client stays out")
    void external() throws Exception {
        Path server = keys("server", "CN=localhost");
        Path client = keys("client", "CN=ann");
        Path stranger = keys("stranger", "CN=ann");
        keytool("-importcert", "-noprompt", "-alias", "server", "-file", certificate("server").toString(), "-keystore",
                store("trust").toString());
        writeKey(server);
        int port = OwnBroker.freePort();
        startBroker(false, """
                listeners:
                  - name: mutual
                    address: "127.0.0.1:%d"
                    tls: {certificate: "%s", key: "%s", clientCa: "%s"}
                authentication: {users: {guest: guest}}
                permissions: [{users: [ann], actions: [publish, consume], queues: [work]}]
                """.formatted(port, certificate("server"), folder.resolve("server.key"), certificate("client")));
        broker.declare("- {type: penstock.queue, name: work, body: {}}\n- {type: penstock.queue, name: other, body: {}}");
        Session session = session(open(certified(port, client)));
        Queue queue = session.createQueue("work");
        publish(session, queue, "from ann");
        assertEquals("from ann", text(session.createConsumer(queue)));
        assertRefused("amqp:unauthorized-access", () -> session.createConsumer(session.createQueue("other")));
        assertThrows(JMSException.class, () -> open(certified(port, stranger)));
    }

    private JmsConnectionFactory certified(int port, Path keys) {
        return new JmsConnectionFactory("amqps://localhost:" + port + "?amqp.saslMechanisms=EXTERNAL&transport.verifyHost=false"
                + "&transport.keyStoreLocation=" + keys + "&transport.keyStorePassword=" + PASSWORD
                + "&transport.trustStoreLocation=" + store("trust") + "&transport.trustStorePassword=" + PASSWORD);
    }

    private Path store(String name) {
        return folder.resolve(name + ".p12");
    }

    private Path certificate(String name) {
        return folder.resolve(name + ".crt");
    }

    /** A key with a certificate that it signed itself, in a store and as PEM. */
    private Path keys(String name, String subject) throws Exception {
        String file = store(name).toString();
        keytool("-genkeypair", "-alias", name, "-keyalg", "EC", "-groupname", "secp256r1", "-dname", subject, "-keystore", file);
        keytool("-exportcert", "-rfc", "-alias", name, "-file", certificate(name).toString(), "-keystore", file);
        return store(name);
    }

    private void writeKey(Path keys) throws Exception {
        KeyStore loaded = KeyStore.getInstance("PKCS12");
        try (InputStream input = Files.newInputStream(keys)) {
            loaded.load(input, PASSWORD.toCharArray());
        }
        byte[] key = loaded.getKey("server", PASSWORD.toCharArray()).getEncoded();
        Files.writeString(folder.resolve("server.key"), "-----BEGIN PRIVATE KEY-----\n"
                + Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(key) + "\n-----END PRIVATE KEY-----\n");
    }

    private static void keytool(String... arguments) throws IOException, InterruptedException {
        List<String> command = Stream.of(
                        Stream.of(Path.of(System.getProperty("java.home"), "bin", "keytool").toString()),
                        Arrays.stream(arguments),
                        Stream.of("-storetype", "PKCS12", "-storepass", PASSWORD))
                .flatMap(words -> words)
                .toList();
        Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
        String output = new String(process.getInputStream().readAllBytes());
        if (process.waitFor() != 0) {
            throw new IOException(output);
        }
    }
}
