package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.penstock.jms.OwnBroker.Ending;
import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.util.List;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** The delivery limit and the dead-letter destination: docs/decisions/032-delivery-attempts.md. */
@DisplayName("Dead letters")
class DeadLetterTest extends OwnBrokerCase {
    private static final int REJECTED = 2; // the client's JMS_AMQP_ACK_TYPE of that outcome

    private void declare() throws Exception {
        startBroker(false, ONLY_WHAT_IS_DECLARED);
        broker.declare("""
                - {type: penstock.exchange, name: orders, body: {exchangeType: Topic}}
                - {type: penstock.queue, name: work, body: {delivery: {maxDeliveries: 3, deadLetter: dead}}}
                - type: penstock.subscription
                  body: {subscriptionName: s, exchange: orders, delivery: {maxDeliveries: 3, deadLetter: dead}}
                """);
    }

    private MessageConsumer dead() throws JMSException {
        Session session = own();
        return session.createConsumer(session.createQueue("dead"));
    }

    @Test
    @DisplayName("After three rollbacks it goes to the dead letters; the next one is served")
    void rolledBack() throws Exception {
        declare();
        Session session = open(failover()).createSession(Session.SESSION_TRANSACTED);
        Queue work = session.createQueue("work");
        publish(own(), work, "poison", "good");
        MessageConsumer consumer = session.createConsumer(work);
        for (int count = 1; count <= 3; count++) {
            Message message = next(consumer);
            assertEquals("poison", message.getBody(String.class));
            assertEquals(count, message.getIntProperty("JMSXDeliveryCount"));
            session.rollback();
        }
        assertEquals("good", text(consumer));
        session.commit();
        assertEquals("poison", text(dead()));
        assertNothing(consumer);
    }

    @ParameterizedTest
    @EnumSource(Ending.class)
    @DisplayName("The count goes on over a restart, on a subscription; and so do the dead letters")
    void restart(Ending ending) throws Exception {
        declare();
        Session session = open(failover("jms.prefetchPolicy.all=1")).createSession(Session.SESSION_TRANSACTED);
        Topic topic = session.createTopic("orders");
        MessageConsumer consumer = session.createSharedDurableConsumer(topic, "s");
        publish(own(), topic, "poison");
        for (int count = 1; count <= 2; count++) {
            assertEquals("poison", text(consumer));
            session.rollback();
        }

        broker.restart(ending);
        Message third = next(consumer);
        assertTrue(third.getIntProperty("JMSXDeliveryCount") >= 3);
        session.rollback();
        assertNothing(consumer);

        broker.restart(ending);
        assertEquals("poison", text(dead()));
    }

    @Test
    @DisplayName("A message that the application rejects is a dead letter at once")
    void rejected() throws Exception {
        declare();
        Session session = open(failover()).createSession(Session.CLIENT_ACKNOWLEDGE);
        Queue work = session.createQueue("work");
        publish(own(), work, "poison", "good");
        MessageConsumer consumer = session.createConsumer(work);
        Message poison = next(consumer);
        poison.setIntProperty("JMS_AMQP_ACK_TYPE", REJECTED);
        poison.acknowledge();
        assertEquals("poison", text(dead()));
        assertEquals("good", text(consumer));
    }

    @Test
    @DisplayName("A consumer that leaves three times with the same message unacknowledged condemns that one alone")
    void left() throws Exception {
        declare();
        Queue work = own().createQueue("work");
        publish(own(), work, "1", "2", "3");
        for (int i = 0; i < 3; i++) {
            Connection connection = open(failover("jms.prefetchPolicy.all=0"));
            assertEquals("1", text(connection.createSession(Session.CLIENT_ACKNOWLEDGE).createConsumer(work)));
            connection.close();
        }
        assertEquals(List.of("1"), browsed(own(), own().createQueue("dead")));
        assertEquals(List.of("2", "3"), texts(own().createConsumer(work), 2));
    }
}
