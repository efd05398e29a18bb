package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.penstock.jms.OwnBroker.Ending;
import jakarta.jms.JMSConsumer;
import jakarta.jms.JMSContext;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageFormatRuntimeException;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Acknowledging and recovering is the session's, over all its consumers: Jakarta Messaging 3.1, 6.2.9 and 6.2.10. */
@DisplayName("What a session acknowledges")
class SessionAcknowledgeTest extends OwnBrokerCase {
    private static void assertAgain(String text, Message message) throws Exception {
        assertEquals(text, message.getBody(String.class));
        assertTrue(message.getJMSRedelivered(), text);
        assertTrue(message.getIntProperty("JMSXDeliveryCount") > 1, text);
    }

    @ParameterizedTest
    @EnumSource(Ending.class)
    @DisplayName("One acknowledge covers what all consumers of the session received before, and nothing later")
    void severalConsumers(Ending ending) throws Exception {
        startBroker();
        Session session = open(failover("jms.prefetchPolicy.all=0")).createSession(Session.CLIENT_ACKNOWLEDGE);
        Queue queue = session.createQueue("work");
        Topic topic = session.createTopic("orders");
        MessageConsumer ofTopic = session.createSharedDurableConsumer(topic, "s");
        MessageConsumer ofQueue = session.createConsumer(queue);
        Session sending = own();
        publish(sending, queue, "q1", "q2", "q3");
        publish(sending, topic, "t1", "t2");
        assertEquals("q1", text(ofQueue));
        assertEquals("t1", text(ofTopic));
        next(ofQueue).acknowledge();
        assertEquals("t2", text(ofTopic));
        publish(session, session.createQueue("other"), "what was acknowledged before is on disk now");
        broker.restart(ending);
        assertAgain("t2", next(ofTopic));
        Message third = next(ofQueue);
        assertEquals("q3", third.getBody(String.class));
        assertFalse(third.getJMSRedelivered());
        third.acknowledge();
        publish(session, session.createQueue("other"), "and again");
        assertNothing(ofTopic);
        assertNothing(ofQueue);
    }

    @ParameterizedTest
    @EnumSource(Ending.class)
    @DisplayName("recover brings back, to each consumer in order, what was received since the last acknowledge; then a restart does")
    void recover(Ending ending) throws Exception {
        startBroker();
        Session session = open(failover("jms.prefetchPolicy.all=0")).createSession(Session.CLIENT_ACKNOWLEDGE);
        Queue one = session.createQueue("one");
        Queue two = session.createQueue("two");
        Session sending = own();
        publish(sending, one, "1", "2", "3");
        publish(sending, two, "a", "b");
        MessageConsumer ofOne = session.createConsumer(one);
        MessageConsumer ofTwo = session.createConsumer(two);
        next(ofOne).acknowledge();
        assertEquals("2", text(ofOne));
        assertEquals("a", text(ofTwo));
        assertEquals("3", text(ofOne));
        session.recover();
        assertAgain("a", next(ofTwo));
        assertAgain("2", next(ofOne));
        assertAgain("3", next(ofOne));
        broker.restart(ending);
        assertAgain("2", next(ofOne));
        assertAgain("3", next(ofOne));
        assertAgain("a", next(ofTwo));
        Message last = next(ofTwo);
        assertFalse(last.getJMSRedelivered());
        last.acknowledge();
        assertNothing(ofOne);
        assertNothing(ofTwo);
    }

    @ParameterizedTest
    @EnumSource(Ending.class)
    @DisplayName("A context acknowledges and recovers as a session does")
    void context(Ending ending) throws Exception {
        startBroker();
        try (JMSContext context = failover("jms.prefetchPolicy.all=0").createContext(JMSContext.CLIENT_ACKNOWLEDGE)) {
            Queue queue = context.createQueue("work");
            publish(own(), queue, "1", "2", "3");
            JMSConsumer consumer = context.createConsumer(queue);
            assertEquals("1", consumer.receive(SOON).getBody(String.class));
            context.acknowledge();
            assertEquals("2", consumer.receive(SOON).getBody(String.class));
            context.recover();
            assertAgain("2", consumer.receive(SOON));
            context.createProducer().send(context.createQueue("other"), "what was acknowledged before is on disk now");
            broker.restart(ending);
            assertAgain("2", consumer.receive(SOON));
            assertEquals("3", consumer.receive(SOON).getBody(String.class));
            context.acknowledge();
            assertNull(consumer.receiveNoWait());
        }
    }

    @Test
    @DisplayName("A body asked for as what it is not stays unreceived: the next call has it")
    void otherBody() throws Exception {
        startBroker();
        try (JMSContext context = failover().createContext(JMSContext.AUTO_ACKNOWLEDGE)) {
            Queue queue = context.createQueue("work");
            publish(own(), queue, "order");
            JMSConsumer consumer = context.createConsumer(queue);
            assertThrows(MessageFormatRuntimeException.class, () -> consumer.receiveBody(Map.class, SOON));
            assertThrows(MessageFormatRuntimeException.class, () -> consumer.receiveBody(byte[].class, SOON));
            assertEquals("order", consumer.receiveBody(String.class, SOON));
            assertNull(consumer.receiveNoWait());
            assertEquals(List.of(), browsed(own(), queue));
        }
    }
}
