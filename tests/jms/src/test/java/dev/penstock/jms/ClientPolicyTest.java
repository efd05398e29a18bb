package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.penstock.jms.OwnBroker.Ending;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import java.util.List;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** The client's redelivery and presettle policies, and the outcomes that an application may choose by JMS_AMQP_ACK_TYPE. */
@DisplayName("Policies of the client")
class ClientPolicyTest extends OwnBrokerCase {
    private static final String ACK_TYPE = "JMS_AMQP_ACK_TYPE";
    private static final int ACCEPTED = 1;
    private static final int REJECTED = 2;
    private static final int RELEASED = 3;
    private static final int MODIFIED_FAILED = 4;
    private static final int MODIFIED_FAILED_UNDELIVERABLE = 5;

    private Queue work;
    private Session sending;

    private void declare() throws Exception {
        startBroker(false, ONLY_WHAT_IS_DECLARED);
        broker.declare("- {type: penstock.queue, name: work, body: {delivery: {maxDeliveries: 9, deadLetter: dead}}}");
        sending = own();
        work = sending.createQueue("work");
    }

    private List<String> dead() throws JMSException {
        return browsed(sending, sending.createQueue("dead"));
    }

    @ParameterizedTest
    @CsvSource({"REJECTED, true, KILLED", "MODIFIED_FAILED_UNDELIVERABLE, false, KILLED", "ACCEPTED, false, TERMINATED"})
    @DisplayName("jms.redeliveryPolicy.maxRedeliveries: the client gives the third delivery the outcome of the policy, counted over a restart")
    void redeliveries(String outcome, boolean isDead, Ending ending) throws Exception {
        declare();
        publish(sending, work, "poison", "good");
        Session session = open(failover("jms.redeliveryPolicy.maxRedeliveries=1", "jms.redeliveryPolicy.outcome=" + outcome))
                .createSession(Session.SESSION_TRANSACTED);
        MessageConsumer consumer = session.createConsumer(work);
        assertEquals("poison", text(consumer));
        session.rollback();
        assertEquals("poison", text(consumer));
        session.rollback();
        assertEquals("good", text(consumer), "the poison is beyond its redeliveries");
        session.commit();
        broker.restart(ending);
        assertNothing(consumer);
        assertEquals(isDead ? List.of("poison") : List.of(), dead());
        assertEquals(outcome.startsWith("MODIFIED") ? List.of("poison") : List.of(), browsed(sending, work));
    }

    /** Receives "1" by a consumer, gives it this outcome, and closes the consumer. */
    private void settle(int outcome) throws JMSException {
        try (Session session = open(failover("jms.prefetchPolicy.all=0")).createSession(Session.CLIENT_ACKNOWLEDGE)) {
            Message message = next(session.createConsumer(work));
            assertEquals("1", message.getBody(String.class));
            message.setIntProperty(ACK_TYPE, outcome);
            message.acknowledge();
        }
    }

    @ParameterizedTest
    @CsvSource({
        ACCEPTED + ", KILLED", REJECTED + ", KILLED", RELEASED + ", TERMINATED",
        MODIFIED_FAILED + ", TERMINATED", MODIFIED_FAILED_UNDELIVERABLE + ", KILLED"
    })
    @DisplayName("Accepted is gone, rejected a dead letter, released and modified wait in their place; only failed ones count; so after a restart")
    void outcomes(int outcome, Ending ending) throws Exception {
        declare();
        publish(sending, work, "1", "2");
        settle(outcome);
        publish(sending, sending.createQueue("dead"), "what was settled before is on disk now");
        broker.restart(ending);
        boolean stays = outcome >= RELEASED;
        assertEquals(stays ? List.of("1", "2") : List.of("2"), browsed(sending, work));
        assertEquals(outcome == REJECTED, dead().contains("1"));
        Message message = next(sending.createConsumer(work));
        assertEquals(stays, message.getJMSRedelivered(), "it was seen by a consumer");
        assertEquals(stays, message.getIntProperty("JMSXDeliveryCount") > 1);
    }

    @Test
    @DisplayName("Undeliverable here: another consumer gets it, this one doesn't; and it counts as failed")
    void undeliverableHere() throws Exception {
        declare();
        publish(sending, work, "1", "2");
        Session session = open(failover("jms.prefetchPolicy.all=0")).createSession(Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(work);
        Message message = next(consumer);
        message.setIntProperty(ACK_TYPE, MODIFIED_FAILED_UNDELIVERABLE);
        message.acknowledge();
        assertEquals("2", text(consumer));
        assertNothing(consumer);
        Message elsewhere = next(own().createConsumer(work));
        assertEquals("1", elsewhere.getBody(String.class));
        assertEquals(2, elsewhere.getIntProperty("JMSXDeliveryCount"));
    }

    @ParameterizedTest
    @ValueSource(strings = {"presettleAll", "presettleConsumers", "presettleQueueConsumers"})
    @DisplayName("Presettled consumers: handed out is gone, and a restart brings nothing back")
    void presettledConsumer(String policy) throws Exception {
        declare();
        publish(sending, work, "1", "2", "3");
        Session session = open(failover("jms.presettlePolicy." + policy + "=true", "jms.prefetchPolicy.all=0"))
                .createSession(Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(work);
        assertEquals(List.of("1", "2"), texts(consumer, 2));
        publish(sending, sending.createQueue("dead"), "what was settled before is on disk now");
        broker.restart(Ending.KILLED);
        assertEquals("3", text(consumer));
        assertNothing(consumer);
    }

    @ParameterizedTest
    @ValueSource(strings = {"presettleAll", "presettleProducers", "presettleQueueProducers"})
    @DisplayName("Presettled producers: what is sent arrives in order and is kept over a restart; nobody is told if it is refused")
    void presettledProducer(String policy) throws Exception {
        declare();
        broker.declare("- {type: penstock.queue, name: small, body: {limits: {maxMessages: 2, overflow: Reject}}}");
        Session session = session(open(failover("jms.presettlePolicy." + policy + "=true")));
        Queue small = session.createQueue("small");
        publish(session, small, "1", "2", "too many");
        MessageConsumer consumer = own().createConsumer(work);
        publish(session, work, "3");
        assertEquals("3", text(consumer), "the connection goes on");
        assertTrue(browsed(sending, small).equals(List.of("1", "2")));
        broker.restart(Ending.TERMINATED);
        assertEquals(List.of("1", "2"), texts(sending.createConsumer(small), 2));
    }
}
