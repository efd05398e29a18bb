package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.penstock.jms.OwnBroker.Ending;
import jakarta.jms.Connection;
import jakarta.jms.Destination;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.util.List;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** {@code MessageProducer.setTimeToLive}, with an expiry destination: where the dead arrive is how a test knows of it. */
@DisplayName("Time to live")
class ExpiryTest extends OwnBrokerCase {
    private static final String EXPIRED = ONLY_WHAT_IS_DECLARED;

    private static void send(Session session, Destination destination, String text, long timeToLive) throws JMSException {
        try (MessageProducer producer = session.createProducer(destination)) {
            producer.setTimeToLive(timeToLive);
            producer.send(session.createTextMessage(text));
        }
    }

    private void declare() throws Exception {
        startBroker(false, EXPIRED);
        broker.declare("""
                - {type: penstock.exchange, name: orders, body: {exchangeType: Topic}}
                - {type: penstock.queue, name: work, body: {delivery: {expiry: expired}}}
                - {type: penstock.queue, name: bounded, body: {delivery: {expiry: expired, maxTtlMs: 300}}}
                - {type: penstock.queue, name: silent, body: {}}
                - {type: penstock.subscription, body: {subscriptionName: s, exchange: orders, delivery: {expiry: expired}}}
                """);
    }

    @Test
    @DisplayName("What expired goes to the expiry destination, what did not is delivered, with its own time of expiry")
    void expires() throws Exception {
        declare();
        Session session = own();
        Queue work = session.createQueue("work");
        send(session, work, "short", 200);
        send(session, work, "long", 600_000);
        send(session, work, "for ever", 0);
        assertEquals("short", text(own().createConsumer(session.createQueue("expired"))));
        MessageConsumer consumer = own().createConsumer(work);
        Message left = next(consumer);
        assertEquals("long", left.getBody(String.class));
        long remaining = left.getJMSExpiration() - System.currentTimeMillis();
        assertTrue(remaining > 0 && remaining <= 600_000, () -> "remaining: " + remaining);
        assertEquals("for ever", text(consumer));
        assertNothing(consumer);
    }

    @Test
    @DisplayName("On a subscription too; and without an expiry destination the message is gone")
    void onASubscription() throws Exception {
        declare();
        Session session = own();
        send(session, session.createQueue("silent"), "gone", 200);
        send(session, session.createTopic("orders"), "order", 200);
        assertEquals("order", text(own().createConsumer(session.createQueue("expired"))));
        assertNothing(own().createConsumer(session.createQueue("silent")));
        assertNothing(own().createSharedDurableConsumer(session.createTopic("orders"), "s"));
    }

    @Test
    @DisplayName("A queue's longest time to live holds for messages that say none, or more")
    void boundedByTheQueue() throws Exception {
        declare();
        Session session = own();
        send(session, session.createQueue("bounded"), "none", 0);
        send(session, session.createQueue("bounded"), "more", 600_000);
        MessageConsumer expired = own().createConsumer(session.createQueue("expired"));
        assertEquals(List.of("more", "none"), texts(expired, 2).stream().sorted().toList());
    }

    @ParameterizedTest
    @EnumSource(Ending.class)
    @DisplayName("The time to live goes on over a restart, and while the broker is down")
    void restart(Ending ending) throws Exception {
        declare();
        Session session = own();
        Topic topic = session.createTopic("orders");
        Queue work = session.createQueue("work");
        send(session, topic, "order", 1500);
        send(session, work, "short", 1500);
        send(session, work, "long", 600_000);
        broker.restart(ending);
        MessageConsumer expired = own().createConsumer(session.createQueue("expired"));
        assertEquals(List.of("order", "short"), texts(expired, 2).stream().sorted().toList());
        assertEquals("long", text(own().createConsumer(work)));
        assertNothing(own().createSharedDurableConsumer(topic, "s"));
    }

    @Test
    @DisplayName("What has expired waits at the expiry destination over a restart, without an expiry of its own")
    void expiredStays() throws Exception {
        declare();
        Session session = own();
        Queue expired = session.createQueue("expired");
        send(session, session.createQueue("work"), "short", 1);
        Connection connection = open(failover());
        Session rollingBack = connection.createSession(Session.SESSION_TRANSACTED);
        assertEquals("short", text(rollingBack.createConsumer(expired)));
        rollingBack.rollback();
        connection.close();
        broker.restart(Ending.KILLED);
        Message message = next(own().createConsumer(expired));
        assertEquals("short", message.getBody(String.class));
        assertEquals(0, message.getJMSExpiration());
    }
}
