package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.qpid.jms.message.JmsMessage;
import org.apache.qpid.jms.provider.amqp.message.AmqpJmsMessageFacade;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * What maxDeliveries counts, and what it cannot count: the client keeps some repetitions to itself, and releases in others.
 *
 * <p>docs/how-to/jms.md, "Messages that come twice", says what these tests prove; docs/decisions/032-delivery-attempts.md has the rule.
 */
@DisplayName("The delivery limit, by the way in which a message comes back")
class DeliveryLimitTest extends OwnBrokerCase {
    private static final int LIMIT = 3;
    private static final int MORE = 2 * LIMIT;
    private static final String PREFETCH = "jms.prefetchPolicy.all=10";

    private Session beside;
    private Queue work;

    @BeforeEach
    void declare() throws Exception {
        startBroker(false, ONLY_WHAT_IS_DECLARED);
        broker.declare("- {type: penstock.queue, name: work, body: {delivery: {maxDeliveries: " + LIMIT + ", deadLetter: dead}}}");
        beside = own();
        work = beside.createQueue("work");
        publish(beside, work, "poison", "good");
    }

    private List<String> dead() throws JMSException {
        return browsed(beside, beside.createQueue("dead"));
    }

    /** Reason and failed deliveries of the dead letter, in the words of its annotations. */
    private List<String> death() throws JMSException {
        JmsMessage message = (JmsMessage) next(beside.createConsumer(beside.createQueue("dead")));
        assertEquals("poison", message.getBody(String.class));
        AmqpJmsMessageFacade facade = (AmqpJmsMessageFacade) message.getFacade();
        return List.of(
                String.valueOf(facade.getTracingAnnotation("x-opt-death-reason")),
                String.valueOf(facade.getTracingAnnotation("x-opt-death-delivery-count")));
    }

    /** How an application, or a container around it, gives up what it received and did not acknowledge. */
    enum Return {
        CLOSES_CONNECTION(Session.CLIENT_ACKNOWLEDGE) {
            @Override
            void give(Connection connection, Session session, MessageConsumer consumer) throws JMSException {
                connection.close();
            }
        },
        CLOSES_SESSION(Session.CLIENT_ACKNOWLEDGE) {
            @Override
            void give(Connection connection, Session session, MessageConsumer consumer) throws JMSException {
                session.close();
            }
        },
        CLOSES_CONSUMER_THEN_SESSION(Session.CLIENT_ACKNOWLEDGE) {
            @Override
            void give(Connection connection, Session session, MessageConsumer consumer) throws JMSException {
                consumer.close();
                session.close();
            }
        },
        CLOSES_CONSUMER_THEN_CONNECTION(Session.CLIENT_ACKNOWLEDGE) {
            @Override
            void give(Connection connection, Session session, MessageConsumer consumer) throws JMSException {
                consumer.close();
                connection.close();
            }
        },
        RECOVERS_THEN_CLOSES(Session.CLIENT_ACKNOWLEDGE) {
            @Override
            void give(Connection connection, Session session, MessageConsumer consumer) throws JMSException {
                session.recover();
                assertEquals("poison", text(consumer)); // the client's own repetition is not the broker's
                session.close();
            }
        },
        ROLLS_BACK(Session.SESSION_TRANSACTED) {
            @Override
            void give(Connection connection, Session session, MessageConsumer consumer) throws JMSException {
                session.rollback();
            }
        },
        CLOSES_TRANSACTED_SESSION(Session.SESSION_TRANSACTED) {
            @Override
            void give(Connection connection, Session session, MessageConsumer consumer) throws JMSException {
                session.close();
            }
        },
        CLOSES_CONNECTION_IN_A_TRANSACTION(Session.SESSION_TRANSACTED) {
            @Override
            void give(Connection connection, Session session, MessageConsumer consumer) throws JMSException {
                connection.close();
            }
        };

        final int mode;

        Return(int mode) {
            this.mode = mode;
        }

        abstract void give(Connection connection, Session session, MessageConsumer consumer) throws JMSException;
    }

    @ParameterizedTest
    @EnumSource(Return.class)
    @DisplayName("What was handed out and given back counts, what was only prefetched does not: three times, then a dead letter")
    void counted(Return way) throws Exception {
        for (int count = 1; count <= LIMIT; count++) {
            assertEquals(List.of(), dead(), "before delivery " + count);
            Connection connection = open(failover(PREFETCH));
            Session session = connection.createSession(way.mode);
            MessageConsumer consumer = session.createConsumer(work);
            Message message = next(consumer);
            assertEquals("poison", message.getBody(String.class));
            assertEquals(count, message.getIntProperty("JMSXDeliveryCount"));
            way.give(connection, session, consumer);
            connection.close();
        }
        assertEquals(List.of("delivery_limit", Integer.toString(LIMIT)), death());
        assertEquals(List.of("good"), rest(beside.createConsumer(work)));
    }

    @Test
    @DisplayName("recover() of CLIENT_ACKNOWLEDGE repeats inside the client without a limit; the broker counts one when it closes")
    void recovered() throws Exception {
        Connection connection = open(failover(PREFETCH));
        Session session = connection.createSession(Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(work);
        for (int count = 1; count <= MORE; count++) {
            Message message = next(consumer);
            assertEquals("poison", message.getBody(String.class));
            assertEquals(count, message.getIntProperty("JMSXDeliveryCount"));
            session.recover();
        }
        assertEquals("poison", text(consumer));
        connection.close();
        Message again = next(beside.createConsumer(work));
        assertEquals("poison", again.getBody(String.class));
        assertEquals(2, again.getIntProperty("JMSXDeliveryCount"));
        assertEquals(List.of(), dead());
    }

    @Test
    @DisplayName("With jms.redeliveryPolicy and the outcome REJECTED, recover() ends after as many deliveries with a dead letter")
    void recoveredWithPolicy() throws Exception {
        Connection connection = open(failover(
                PREFETCH, "jms.redeliveryPolicy.maxRedeliveries=" + (LIMIT - 1), "jms.redeliveryPolicy.outcome=REJECTED"));
        Session session = connection.createSession(Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(work);
        for (int count = 1; count <= LIMIT; count++) {
            assertEquals("poison", text(consumer));
            session.recover();
        }
        Message good = next(consumer);
        assertEquals("good", good.getBody(String.class));
        good.acknowledge();
        assertEquals(List.of("rejected", "0"), death());
        assertNothing(consumer);
    }

    @Test
    @DisplayName("A listener that throws without a transaction: the client releases the message, and nothing is counted")
    void thrown() throws Exception {
        Session session = session(open(failover("jms.prefetchPolicy.all=1", "jms.redeliveryPolicy.maxRedeliveries=" + (LIMIT - 1))));
        MessageConsumer consumer = session.createConsumer(work);
        Semaphore handed = new Semaphore(0);
        AtomicInteger highest = new AtomicInteger();
        consumer.setMessageListener(message -> {
            highest.accumulateAndGet(deliveryCount(message), Math::max);
            handed.release();
            throw new IllegalStateException("as a broken application would");
        });
        assertTrue(handed.tryAcquire(MORE, SOON, TimeUnit.MILLISECONDS));
        session.close();
        assertEquals(List.of(), dead());
        assertEquals(1, highest.get(), "each delivery looks like the first, so that no policy of the client ends it either");
        assertEquals(List.of("poison", "good"), browsed(beside, work));
    }

    private static int deliveryCount(Message message) {
        try {
            return message.getIntProperty("JMSXDeliveryCount");
        } catch (JMSException unreadable) {
            throw new IllegalArgumentException(unreadable);
        }
    }
}
