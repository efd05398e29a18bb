package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/**
 * Messages that come a second time: {@code JMSRedelivered}, and {@code JMSXDeliveryCount}, which is AMQP's delivery-count plus one.
 *
 * <p>{@code Message.getJMSRedelivered}: a message that may have been delivered before says so.
 */
@DisplayName("Redelivery")
class RedeliveryTest extends JmsTestCase {
    private static void assertFirst(String text, Message message) throws JMSException {
        assertEquals(text, message.getBody(String.class));
        assertFalse(message.getJMSRedelivered(), text);
        assertEquals(1, message.getIntProperty("JMSXDeliveryCount"), text);
    }

    private static void assertAgain(String text, Message message) throws JMSException {
        assertEquals(text, message.getBody(String.class));
        assertTrue(message.getJMSRedelivered(), text);
        assertTrue(message.getIntProperty("JMSXDeliveryCount") > 1, text);
    }

    @Test
    @DisplayName("Session.recover brings back what was not acknowledged, in order, counted")
    void recover() throws JMSException {
        Topic topic = topic("orders");
        Session session = connect().createSession(Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer consumer = session.createSharedDurableConsumer(topic, name("s"));
        send(topic, "1", "2", "3");
        assertFirst("1", next(consumer));
        assertFirst("2", next(consumer));
        session.recover();
        assertAgain("1", next(consumer));
        assertAgain("2", next(consumer));
        Message third = next(consumer);
        assertFirst("3", third);
        third.acknowledge();
    }

    @Test
    @DisplayName("A lost connection brings back what was received and not acknowledged, in order, counted")
    void lostConnection() throws JMSException {
        Topic topic = topic("orders");
        Connection lost = connect("jms.prefetchPolicy.all=2");
        MessageConsumer first = lost.createSession(Session.CLIENT_ACKNOWLEDGE).createSharedDurableConsumer(topic, name("s"));
        send(topic, "1", "2", "3", "4");
        assertFirst("1", next(first));
        assertFirst("2", next(first));
        lost.close();

        MessageConsumer second = session().createSharedDurableConsumer(topic, name("s"));
        assertAgain("1", next(second));
        assertAgain("2", next(second));
        assertEquals(List.of("3", "4"), texts(second, 2));
    }

    @Test
    @DisplayName("What was acknowledged does not come back; acknowledge covers all that the session received")
    void acknowledgedIsGone() throws JMSException {
        Topic topic = topic("orders");
        Connection first = connect();
        MessageConsumer consumer = first.createSession(Session.CLIENT_ACKNOWLEDGE).createSharedDurableConsumer(topic, name("s"));
        send(topic, "1", "2", "3");
        next(consumer);
        next(consumer).acknowledge();
        first.close();
        MessageConsumer second = session().createSharedDurableConsumer(topic, name("s"));
        assertEquals("3", text(second));
        assertNothing(second);
    }

    @Test
    @DisplayName("What the client releases from its prefetch buffer was not delivered, and isn't counted")
    void releasedIsNotCounted() throws JMSException {
        Topic topic = topic("orders");
        Session session = connect("jms.prefetchPolicy.all=10").createSession(Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer consumer = session.createSharedDurableConsumer(topic, name("s"));
        send(topic, "1", "2", "3");
        Message unsettled = next(consumer);
        consumer.close(); // with 1 unsettled the client drains the link and releases 2 and 3
        MessageConsumer second = session().createSharedDurableConsumer(topic, name("s"));
        assertFirst("2", next(second));
        assertFirst("3", next(second));
        unsettled.acknowledge();
        assertNothing(second);
    }

    @Test
    @DisplayName("A listener that throws gets the message again")
    void throwingListener() throws Exception {
        Topic topic = topic("orders");
        AtomicBoolean first = new AtomicBoolean(true);
        BlockingQueue<String> receipts = new LinkedBlockingQueue<>();
        MessageConsumer consumer = session().createSharedDurableConsumer(topic, name("s"));
        consumer.setMessageListener(message -> {
            receipts.add("receipt");
            if (first.getAndSet(false)) {
                throw new IllegalStateException("as a broken application would");
            }
            receipts.add("handled");
        });
        send(topic, "1");
        for (String expected : List.of("receipt", "receipt", "handled")) {
            assertEquals(expected, receipts.poll(SOON, TimeUnit.MILLISECONDS));
        }
    }
}
