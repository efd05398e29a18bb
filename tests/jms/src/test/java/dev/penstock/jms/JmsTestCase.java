package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.function.Executable;

/**
 * What every test needs: connections that are closed after it, names of its own, and ways to send and receive.
 *
 * <p>Nothing here sleeps. A persistent send returns when the broker has accepted and routed the message, and {@code receiveNoWait}
 * asks the broker (by drain) before it answers null, so that "nothing is there" is an answer and not the end of a wait.
 */
abstract class JmsTestCase {
    /** Milliseconds to wait for what has to come; only a failing test waits this long, also on a machine that is busy. */
    static final long SOON = 240_000;

    static final String LOCKED = "amqp:resource-locked";
    static final String NOT_FOUND = "amqp:not-found";

    private final List<Connection> connections = new ArrayList<>();
    private final String own = UUID.randomUUID().toString().substring(0, 8);
    private Session publishing;

    @AfterEach
    void closeConnections() throws JMSException {
        for (Connection connection : connections) {
            connection.close();
        }
    }

    /** A name that no other test uses. */
    final String name(String stem) {
        return stem + "-" + own;
    }

    /** A started connection without a ClientID. */
    final Connection connect(String... options) throws JMSException {
        return open(TestBroker.factory(TestBroker.uri(options)));
    }

    /** A started connection with a ClientID. */
    final Connection connectAs(String clientId, String... options) throws JMSException {
        JmsConnectionFactory factory = TestBroker.factory(TestBroker.uri(options));
        factory.setClientID(clientId);
        return open(factory);
    }

    /** A started connection of a factory; closed after the test. */
    final Connection open(JmsConnectionFactory factory) throws JMSException {
        factory.setConnectTimeout(SOON);
        Connection connection = factory.createConnection();
        connections.add(connection);
        connection.start();
        return connection;
    }

    /** A new session of a new connection without a ClientID. */
    final Session session() throws JMSException {
        return session(connect());
    }

    static Session session(Connection connection) throws JMSException {
        return connection.createSession(Session.AUTO_ACKNOWLEDGE);
    }

    /**
     * Returns when the broker has read what the session's connection sent before: the credit of new consumers, acknowledgements.
     *
     * <p>The client waits for no answer to these, but for the answers to this producer's opening and closing, which come later.
     */
    static void flush(Session session) throws JMSException {
        session.createProducer(null).close();
    }

    /** Consumers of a shared durable subscription, on a connection each. The broker knows how much room each one has. */
    final List<MessageConsumer> shared(Topic topic, int count, int acknowledgeMode, String... options) throws JMSException {
        List<MessageConsumer> consumers = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            Session session = connect(options).createSession(acknowledgeMode);
            consumers.add(session.createSharedDurableConsumer(topic, name("s")));
            flush(session);
        }
        return consumers;
    }

    /** A topic of this test's own; the broker's development mode makes its exchange when it is first named. */
    final Topic topic(String stem) throws JMSException {
        return publishing().createTopic(name(stem));
    }

    /** Sends persistent text messages, one after the other; each is accepted when this returns. */
    final void send(Topic topic, String... texts) throws JMSException {
        MessageProducer producer = publishing().createProducer(topic);
        for (String text : texts) {
            producer.send(publishing().createTextMessage(text));
        }
        producer.close();
    }

    /** Sends one persistent text message with the string property {@code region}. */
    final void sendFrom(Topic topic, String region, String text) throws JMSException {
        TextMessage message = publishing().createTextMessage(text);
        message.setStringProperty("region", region);
        MessageProducer producer = publishing().createProducer(topic);
        producer.send(message);
        producer.close();
    }

    final Session publishing() throws JMSException {
        if (publishing == null) {
            publishing = session();
        }
        return publishing;
    }

    /** The next message; fails if none comes. */
    static Message next(MessageConsumer consumer) throws JMSException {
        Message message = consumer.receive(SOON);
        assertNotNull(message, "no message came");
        return message;
    }

    /** The text of the next message; fails if none comes. */
    static String text(MessageConsumer consumer) throws JMSException {
        return next(consumer).getBody(String.class);
    }

    /** The texts of the next messages, in the order in which they come. */
    static List<String> texts(MessageConsumer consumer, int count) throws JMSException {
        List<String> texts = new ArrayList<>();
        while (texts.size() < count) {
            texts.add(text(consumer));
        }
        return texts;
    }

    /** All that the broker has for this consumer now. */
    static List<String> rest(MessageConsumer consumer) throws JMSException {
        List<String> texts = new ArrayList<>();
        for (Message message = consumer.receiveNoWait(); message != null; message = consumer.receiveNoWait()) {
            texts.add(message.getBody(String.class));
        }
        return texts;
    }

    /** Fails if the broker has anything for this consumer now. */
    static void assertNothing(MessageConsumer consumer) throws JMSException {
        Message message = consumer.receiveNoWait();
        assertNull(message, () -> "came unexpectedly: " + message);
    }

    /** Fails unless the broker refuses with this AMQP condition; returns the exception. */
    static JMSException assertRefused(String condition, Executable attempt) {
        return assertRefused(JMSException.class, condition, attempt);
    }

    /** Fails unless the broker refuses with this AMQP condition, and the client tells it by this exception. */
    static <T extends JMSException> T assertRefused(Class<T> type, String condition, Executable attempt) {
        T refusal = assertThrows(type, attempt);
        assertTrue(refusal.getMessage().contains("condition = " + condition), refusal.getMessage());
        return refusal;
    }
}
