package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.TransactionRolledBackException;
import jakarta.jms.TransactionRolledBackRuntimeException;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.apache.qpid.jms.JmsTransactionInDoubtException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;

/** Tests with a broker of their own, which they restart, or start with settings. Clients find it again by failover. */
abstract class OwnBrokerCase extends JmsTestCase {
    static final String FAILOVER = "failover.reconnectDelay=50&failover.useReconnectBackOff=false";

    /** Settings of a broker that makes nothing by itself; everybody gets in. */
    static final String ONLY_WHAT_IS_DECLARED = "authentication: {anonymous: true, users: {guest: guest}}\n";

    @TempDir
    Path folder;

    OwnBroker broker;

    /** Starts a broker that makes what is named. */
    final void startBroker() throws IOException {
        startBroker(true, "");
    }

    /** Starts a broker with settings. */
    final void startBroker(boolean makesWhatIsNamed, String settings) throws IOException {
        broker = new OwnBroker(Files.createDirectory(folder.resolve("data")), makesWhatIsNamed, settings);
        broker.start();
    }

    @AfterEach
    void stopBroker() throws JMSException {
        closeConnections();
        if (broker != null) {
            broker.close();
        }
    }

    /** A factory whose connections survive restarts of the broker. */
    final JmsConnectionFactory failover(String... options) {
        String more = options.length == 0 ? "" : "&" + String.join("&", options);
        return new JmsConnectionFactory("guest", "guest", "failover:(amqp://" + broker.address() + ")?" + FAILOVER + more);
    }

    /** A factory whose connections end with the broker's. */
    final JmsConnectionFactory direct(String user, String password) {
        return new JmsConnectionFactory(user, password, "amqp://" + broker.address());
    }

    /** A started connection with a ClientID that survives restarts. */
    final Connection openAs(String clientId) throws JMSException {
        JmsConnectionFactory factory = failover();
        factory.setClientID(clientId);
        return open(factory);
    }

    /** A new auto-acknowledging session that survives restarts. */
    final Session own() throws JMSException {
        return session(open(failover()));
    }

    /** Sends persistent text messages; each is accepted when this returns. */
    static void publish(Session session, jakarta.jms.Destination destination, String... texts) throws JMSException {
        try (MessageProducer producer = session.createProducer(destination)) {
            for (String text : texts) {
                producer.send(session.createTextMessage(text));
            }
        }
    }

    /** What is done in one transaction. */
    interface Work {
        void run() throws Exception;
    }

    /**
     * Commits a transaction that was open while the broker restarted: it is gone, and the client has to say so.
     *
     * <p>It says that all was rolled back, or, if it hears of the broken connection only now, that it can't know.
     */
    static void assertNotCommitted(Executable commit) {
        Exception told = assertThrows(Exception.class, commit);
        assertTrue(wasUndone(told) || isInDoubt(told), told::toString);
    }

    /** Does the work and commits it; again from the start if the client says that it was rolled back. */
    static void committed(Work commit, Work work) throws Exception {
        for (int attempt = 0; ; attempt++) {
            work.run();
            try {
                commit.run();
                return;
            } catch (TransactionRolledBackException | TransactionRolledBackRuntimeException undone) {
                if (attempt == 3) { // a client that hears late of a restart doubts the next transaction too, but not more
                    throw undone;
                }
            }
        }
    }

    private static boolean wasUndone(Exception told) {
        return told instanceof TransactionRolledBackException || told instanceof TransactionRolledBackRuntimeException;
    }

    private static boolean isInDoubt(Exception told) {
        return told instanceof JmsTransactionInDoubtException || told.getCause() instanceof JmsTransactionInDoubtException;
    }

    /** The texts that a browser shows, without taking them. */
    static List<String> browsed(Session session, Queue queue) throws JMSException {
        return browsed(session, queue, null);
    }

    static List<String> browsed(Session session, Queue queue, String selector) throws JMSException {
        List<String> texts = new ArrayList<>();
        try (QueueBrowser browser = session.createBrowser(queue, selector)) {
            for (var messages = browser.getEnumeration(); messages.hasMoreElements(); ) {
                texts.add(((Message) messages.nextElement()).getBody(String.class));
            }
        }
        return texts;
    }
}
