package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.penstock.jms.OwnBroker.Ending;
import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Acknowledge modes and prefetch: what is acknowledged is gone after a restart, everything else comes again. */
@DisplayName("Acknowledge modes")
class AcknowledgeTest extends OwnBrokerCase {
    private static final int NO_ACKNOWLEDGE = 100; // of the client, beyond JMS
    private static final int INDIVIDUAL_ACKNOWLEDGE = 101;

    private Connection connection;

    /** A queue "work" with five messages, and a session of this mode on {@link #connection}. */
    private Session filled(int mode, String... options) throws Exception {
        startBroker();
        Session sending = own();
        publish(sending, sending.createQueue("work"), "1", "2", "3", "4", "5");
        connection = open(failover(options));
        return connection.createSession(mode);
    }

    /** What a new consumer gets after {@link #connection} has gone. */
    private List<String> left() throws JMSException {
        connection.close();
        Session session = own();
        return rest(session.createConsumer(session.createQueue("work")));
    }

    private static void assertSame(String text, boolean redelivered, Message message) throws JMSException {
        assertEquals(text, message.getBody(String.class));
        assertEquals(redelivered, message.getJMSRedelivered(), text);
        assertEquals(redelivered, message.getIntProperty("JMSXDeliveryCount") > 1, text);
    }

    @Test
    @DisplayName("CLIENT_ACKNOWLEDGE: all that the session received; the rest comes again after a restart, and says so")
    void client() throws Exception {
        Session session = filled(Session.CLIENT_ACKNOWLEDGE, "jms.prefetchPolicy.all=0");
        MessageConsumer consumer = session.createConsumer(session.createQueue("work"));
        next(consumer);
        next(consumer).acknowledge();
        assertSame("3", false, next(consumer));
        publish(session, session.createQueue("other"), "what was acknowledged before is on disk now");
        broker.restart(Ending.KILLED);
        assertSame("3", true, next(consumer));
        assertSame("4", false, next(consumer));
        session.recover();
        assertSame("3", true, next(consumer));
        Message fourth = next(consumer);
        assertSame("4", true, fourth);
        fourth.acknowledge();
        assertSame("5", false, next(consumer));
    }

    @Test
    @DisplayName("INDIVIDUAL_ACKNOWLEDGE: this message alone; those around it come again after a restart")
    void individual() throws Exception {
        Session session = filled(INDIVIDUAL_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(session.createQueue("work"));
        List<Message> messages = List.of(next(consumer), next(consumer), next(consumer));
        messages.get(1).acknowledge();
        publish(session, session.createQueue("other"), "what was acknowledged before is on disk now");
        broker.restart(Ending.TERMINATED);
        assertSame("1", true, next(consumer));
        Message third = next(consumer);
        assertSame("3", true, third);
        third.acknowledge();
        publish(session, session.createQueue("other"), "and this too");
        assertEquals(List.of("1", "4", "5"), left());
    }

    @ParameterizedTest
    @ValueSource(ints = {Session.AUTO_ACKNOWLEDGE, Session.DUPS_OK_ACKNOWLEDGE})
    @DisplayName("AUTO and DUPS_OK: what was received before a restart in order is gone; DUPS_OK may repeat it, and says so")
    void automatic(int mode) throws Exception {
        Session session = filled(mode);
        MessageConsumer consumer = session.createConsumer(session.createQueue("work"));
        assertEquals(List.of("1", "2"), texts(consumer, 2));
        publish(session, session.createQueue("other"), "what was acknowledged before is on disk now");
        broker.restart(Ending.KILLED);
        Message message = next(consumer);
        while (mode == Session.DUPS_OK_ACKNOWLEDGE && message.getBody(String.class).compareTo("3") < 0) {
            assertTrue(message.getJMSRedelivered());
            message = next(consumer);
        }
        assertEquals("3", message.getBody(String.class));
        assertEquals(List.of("4", "5"), texts(consumer, 2));
    }

    @Test
    @DisplayName("NO_ACKNOWLEDGE, the client's own: handed out is gone, restart or not")
    void none() throws Exception {
        Session session = filled(NO_ACKNOWLEDGE, "jms.prefetchPolicy.all=0");
        MessageConsumer consumer = session.createConsumer(session.createQueue("work"));
        assertEquals(List.of("1", "2"), texts(consumer, 2));
        publish(session, session.createQueue("other"), "what was settled before is on disk now");
        broker.restart(Ending.KILLED);
        assertEquals(List.of("3", "4", "5"), texts(consumer, 3));
    }

    @Test
    @DisplayName("Any prefetch: none lost and none twice; what lay in the buffer goes to others when the consumer leaves")
    void prefetch() throws Exception {
        startBroker();
        Session sending = own();
        Map<String, Connection> connections = new TreeMap<>();
        Map<String, MessageConsumer> consumers = new TreeMap<>();
        for (String prefetch : List.of("0", "1", "5000")) {
            publish(sending, sending.createQueue(prefetch), "1", "2", "3", "4", "5");
            connections.put(prefetch, open(failover("jms.prefetchPolicy.all=" + prefetch)));
            Session session = session(connections.get(prefetch));
            consumers.put(prefetch, session.createConsumer(session.createQueue(prefetch)));
            assertEquals(List.of("1", "2"), texts(consumers.get(prefetch), 2));
            publish(session, session.createQueue("other"), "what was acknowledged before is on disk now");
        }
        broker.restart(Ending.TERMINATED);
        for (String prefetch : connections.keySet()) {
            assertEquals("3", text(consumers.get(prefetch)), prefetch);
            connections.get(prefetch).close();
            assertEquals(List.of("4", "5"), rest(sending.createConsumer(sending.createQueue(prefetch))), prefetch);
        }
    }

    @Test
    @DisplayName("A message that nobody was given yet is no redelivery, however often its queue was restarted")
    void neverGiven() throws Exception {
        filled(Session.AUTO_ACKNOWLEDGE);
        broker.restart(Ending.KILLED);
        broker.restart(Ending.TERMINATED);
        Session session = own();
        Message message = next(session.createConsumer(session.createQueue("work")));
        assertFalse(message.getJMSRedelivered());
        assertEquals(1, message.getIntProperty("JMSXDeliveryCount"));
    }
}
