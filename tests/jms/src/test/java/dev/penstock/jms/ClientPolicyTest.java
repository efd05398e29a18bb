package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.penstock.jms.OwnBroker.Ending;
import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** The client's redelivery and presettle policies, and the outcomes that an application may choose by JMS_AMQP_ACK_TYPE. */
@DisplayName("Policies of the client")
class ClientPolicyTest extends OwnBrokerCase {
    private static final String ACK_TYPE = "JMS_AMQP_ACK_TYPE";
    private static final int ACCEPTED = 1;
    private static final int REJECTED = 2;
    private static final int RELEASED = 3;
    private static final int MODIFIED_FAILED = 4;
    private static final int MODIFIED_FAILED_UNDELIVERABLE = 5;

    private Session sending;

    private void declare() throws Exception {
        startBroker(false, ONLY_WHAT_IS_DECLARED);
        broker.declare("""
                - {type: penstock.queue, name: a, body: {delivery: {maxDeliveries: 9, deadLetter: dead-a}}}
                - {type: penstock.queue, name: b, body: {delivery: {maxDeliveries: 9, deadLetter: dead-b}}}
                - {type: penstock.queue, name: c, body: {delivery: {maxDeliveries: 9, deadLetter: dead-c}}}
                - {type: penstock.queue, name: d, body: {delivery: {maxDeliveries: 9, deadLetter: dead-d}}}
                - {type: penstock.queue, name: e, body: {delivery: {maxDeliveries: 9, deadLetter: dead-e}}}
                - {type: penstock.queue, name: small, body: {limits: {maxMessages: 2, overflow: Reject}}}
                - {type: penstock.queue, name: other, body: {}}
                """);
        sending = own();
    }

    private Queue queue(String name) throws JMSException {
        return sending.createQueue(name);
    }

    private List<String> browsed(String name) throws JMSException {
        return browsed(sending, queue(name));
    }

    /** A session's own sends come after what it settled: once they are accepted that is on disk. */
    private void settled(Session session) throws JMSException {
        publish(session, session.createQueue("other"), "after what was settled");
        session.commit();
    }

    private void leavesThePoison(String name, String outcome) throws JMSException {
        publish(sending, queue(name), "poison", "good");
        Connection connection =
                open(failover("jms.redeliveryPolicy.maxRedeliveries=1", "jms.redeliveryPolicy.outcome=" + outcome));
        Session session = connection.createSession(Session.SESSION_TRANSACTED);
        MessageConsumer consumer = session.createConsumer(queue(name));
        for (int i = 0; i < 2; i++) {
            assertEquals("poison", text(consumer));
            session.rollback();
        }
        assertEquals("good", text(consumer), "the poison is beyond its redeliveries");
        settled(session);
        connection.close();
    }

    @ParameterizedTest
    @EnumSource(Ending.class)
    @DisplayName("jms.redeliveryPolicy.maxRedeliveries: the client gives the third delivery the policy's outcome, and so it stays over a restart")
    void redeliveries(Ending ending) throws Exception {
        declare();
        leavesThePoison("a", "REJECTED");
        leavesThePoison("b", "MODIFIED_FAILED_UNDELIVERABLE");
        leavesThePoison("c", "ACCEPTED");
        broker.restart(ending);
        assertEquals(List.of(List.of(), List.of("poison"), List.of()), List.of(browsed("a"), browsed("b"), browsed("c")));
        assertEquals(List.of("poison"), browsed("dead-a"));
        assertEquals(List.of(), browsed("dead-b"));
        assertEquals(List.of(), browsed("dead-c"));
    }

    /** Receives "1" by a consumer, and gives it this outcome. */
    private void settle(String name, int outcome) throws JMSException {
        publish(sending, queue(name), "1", "2");
        Connection connection = open(failover("jms.prefetchPolicy.all=0"));
        Session session = connection.createSession(Session.CLIENT_ACKNOWLEDGE);
        Message message = next(session.createConsumer(queue(name)));
        assertEquals("1", message.getBody(String.class));
        message.setIntProperty(ACK_TYPE, outcome);
        message.acknowledge();
        publish(session, session.createQueue("other"), "after what was settled");
        connection.close();
    }

    @ParameterizedTest
    @EnumSource(Ending.class)
    @DisplayName("Accepted is gone, rejected a dead letter, released and modified wait in their place, and say so; after a restart too")
    void outcomes(Ending ending) throws Exception {
        declare();
        settle("a", ACCEPTED);
        settle("b", REJECTED);
        settle("c", RELEASED);
        settle("d", MODIFIED_FAILED);
        settle("e", MODIFIED_FAILED_UNDELIVERABLE);
        broker.restart(ending);
        for (String name : List.of("a", "b")) {
            assertEquals(List.of("2"), browsed(name), name);
            assertFalse(next(sending.createConsumer(queue(name))).getJMSRedelivered(), name);
        }
        assertEquals(List.of("1"), browsed("dead-b"));
        assertEquals(List.of(), browsed("dead-a"));
        for (String name : List.of("c", "d", "e")) {
            assertEquals(List.of("1", "2"), browsed(name), name);
            Message again = next(sending.createConsumer(queue(name)));
            assertTrue(again.getJMSRedelivered(), name);
            assertTrue(again.getIntProperty("JMSXDeliveryCount") > 1, name);
        }
    }

    @Test
    @DisplayName("Undeliverable here: another consumer gets it, this one doesn't; and it counts as failed")
    void undeliverableHere() throws Exception {
        declare();
        publish(sending, queue("a"), "1", "2");
        Session session = open(failover("jms.prefetchPolicy.all=0")).createSession(Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(queue("a"));
        Message message = next(consumer);
        message.setIntProperty(ACK_TYPE, MODIFIED_FAILED_UNDELIVERABLE);
        message.acknowledge();
        assertEquals("2", text(consumer));
        assertNothing(consumer);
        Message elsewhere = next(own().createConsumer(queue("a")));
        assertEquals("1", elsewhere.getBody(String.class));
        assertEquals(2, elsewhere.getIntProperty("JMSXDeliveryCount"));
    }

    @Test
    @DisplayName("Presettled consumers: handed out is gone, and a kill -9 brings nothing back")
    void presettledConsumers() throws Exception {
        declare();
        Map<String, String> policies = Map.of("a", "presettleAll", "b", "presettleConsumers", "c", "presettleQueueConsumers");
        Map<String, MessageConsumer> consumers = new TreeMap<>();
        for (String name : policies.keySet()) {
            publish(sending, queue(name), "1", "2", "3");
            Session session = open(failover("jms.presettlePolicy." + policies.get(name) + "=true", "jms.prefetchPolicy.all=0"))
                    .createSession(Session.CLIENT_ACKNOWLEDGE);
            consumers.put(name, session.createConsumer(queue(name)));
            assertEquals(List.of("1", "2"), texts(consumers.get(name), 2), name);
        }
        publish(sending, queue("other"), "what was settled before is on disk now");
        broker.restart(Ending.KILLED);
        for (MessageConsumer consumer : consumers.values()) {
            assertEquals("3", text(consumer));
            assertNothing(consumer);
        }
    }

    @Test
    @DisplayName("Presettled producers: what is sent arrives in order and is kept over a restart; nobody is told if it is refused")
    void presettledProducers() throws Exception {
        declare();
        MessageConsumer consumer = own().createConsumer(queue("a"));
        for (String policy : List.of("presettleAll", "presettleProducers", "presettleQueueProducers")) {
            Session session = session(open(failover("jms.presettlePolicy." + policy + "=true")));
            publish(session, queue("small"), policy, "may be too many");
            publish(session, queue("a"), policy);
            assertEquals(policy, text(consumer), "the connection goes on");
        }
        List<String> kept = List.of("presettleAll", "may be too many");
        assertEquals(kept, browsed("small"));
        broker.restart(Ending.TERMINATED);
        assertEquals(kept, texts(sending.createConsumer(queue("small")), 2));
    }
}
