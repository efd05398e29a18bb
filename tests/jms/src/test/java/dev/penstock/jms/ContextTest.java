package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.penstock.jms.OwnBroker.Ending;
import jakarta.jms.CompletionListener;
import jakarta.jms.InvalidDestinationRuntimeException;
import jakarta.jms.JMSConsumer;
import jakarta.jms.JMSContext;
import jakarta.jms.JMSException;
import jakarta.jms.JMSProducer;
import jakarta.jms.JMSRuntimeException;
import jakarta.jms.Message;
import jakarta.jms.Queue;
import jakarta.jms.Topic;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

/** The simplified API of JMS 2.0, and sends that don't wait. */
@DisplayName("JMSContext and asynchronous sends")
class ContextTest extends OwnBrokerCase {
    private final List<JMSContext> contexts = new ArrayList<>();

    private JMSContext context(int mode) {
        JMSContext context = failover().createContext(mode);
        contexts.add(context);
        return context;
    }

    @AfterEach
    void closeContexts() {
        contexts.forEach(JMSContext::close);
    }

    @ParameterizedTest
    @CsvSource({"KILLED, true", "TERMINATED, false"})
    @DisplayName("A shared durable consumer of a context: joined, restarted, closed, unsubscribed")
    void sharedDurable(Ending ending, boolean makesWhatIsNamed) throws Exception {
        startBroker(makesWhatIsNamed, makesWhatIsNamed ? "" : ONLY_WHAT_IS_DECLARED);
        if (!makesWhatIsNamed) {
            broker.declare("- {type: penstock.exchange, name: orders, body: {exchangeType: Topic}}");
        }
        JMSContext context = context(JMSContext.AUTO_ACKNOWLEDGE);
        Topic topic = context.createTopic("orders");
        JMSConsumer first = context.createSharedDurableConsumer(topic, "s");
        JMSConsumer second = context.createContext(JMSContext.AUTO_ACKNOWLEDGE).createSharedDurableConsumer(topic, "s");
        JMSProducer producer = context.createProducer().setProperty("region", "eu").setPriority(7);
        producer.send(topic, "before");
        broker.restart(ending);
        producer.send(topic, "after");
        Map<String, Integer> received = new HashMap<>();
        while (received.size() < 2) {
            for (JMSConsumer consumer : List.of(first, second)) {
                Message message = consumer.receiveNoWait();
                if (message != null) {
                    assertEquals("eu", message.getStringProperty("region"));
                    received.put(message.getBody(String.class), message.getJMSPriority());
                }
            }
        }
        assertEquals(Map.of("before", 7, "after", 7), received);
        first.close();
        assertThrows(JMSRuntimeException.class, () -> context.unsubscribe("s"));
        second.close();
        context.unsubscribe("s");
        assertThrows(InvalidDestinationRuntimeException.class, () -> context.unsubscribe("s"));
    }

    @ParameterizedTest
    @EnumSource(Ending.class)
    @DisplayName("A transacted context: a restart before the commit rolls back, then the work is done once")
    void transacted(Ending ending) throws Exception {
        startBroker();
        JMSContext context = context(JMSContext.SESSION_TRANSACTED);
        Queue in = context.createQueue("in");
        Queue out = context.createQueue("out");
        publish(own(), in, "order");
        JMSConsumer consumer = context.createConsumer(in);
        context.createProducer().send(out, consumer.receiveBody(String.class, SOON) + " once");
        broker.restart(ending);
        assertNotCommitted(context::commit);
        committed(context::commit,
                () -> context.createProducer().send(out, consumer.receiveBody(String.class, SOON) + " done"));
        JMSConsumer results = context(JMSContext.AUTO_ACKNOWLEDGE).createConsumer(out);
        assertEquals("order done", results.receiveBody(String.class, SOON));
        assertNull(results.receiveNoWait());
    }

    /** Completes a future per message: with null, or with what went wrong. */
    private static final class Completions implements CompletionListener {
        private final Map<String, CompletableFuture<Exception>> futures = new ConcurrentHashMap<>();

        CompletableFuture<Exception> of(String text) {
            return futures.computeIfAbsent(text, key -> new CompletableFuture<>());
        }

        private void complete(Message message, Exception error) {
            try {
                of(message.getBody(String.class)).complete(error);
            } catch (JMSException unreadable) {
                throw new IllegalStateException(unreadable);
            }
        }

        @Override
        public void onCompletion(Message message) {
            complete(message, null);
        }

        @Override
        public void onException(Message message, Exception error) {
            complete(message, error);
        }
    }

    @Test
    @DisplayName("Asynchronous sends complete when the message is on disk: all of those are there after a kill -9")
    void asynchronous() throws Exception {
        startBroker();
        JMSContext context = context(JMSContext.AUTO_ACKNOWLEDGE);
        Queue queue = context.createQueue("work");
        Completions completions = new Completions();
        JMSProducer producer = context.createProducer().setAsync(completions);
        List<String> texts = IntStream.range(0, 200).mapToObj(Integer::toString).toList();
        texts.forEach(text -> producer.send(queue, text));
        assertNull(completions.of(texts.get(99)).get(SOON, TimeUnit.MILLISECONDS), "accepted, so it is on disk");
        broker.restart(Ending.KILLED); // the client fails those that were under way
        Set<String> accepted = new HashSet<>();
        for (String text : texts) {
            if (completions.of(text).get(SOON, TimeUnit.MILLISECONDS) == null) {
                accepted.add(text);
            }
        }
        JMSConsumer consumer = context.createConsumer(queue);
        List<String> received = new ArrayList<>();
        for (Message message = consumer.receiveNoWait(); message != null; message = consumer.receiveNoWait()) {
            received.add(message.getBody(String.class));
        }
        assertEquals(texts.stream().filter(received::contains).toList(), received, "in order, none twice");
        assertTrue(received.containsAll(accepted));
    }

    @Test
    @DisplayName("A refused asynchronous send completes with why, and the others go through")
    void asynchronousRefusal() throws Exception {
        startBroker(false, ONLY_WHAT_IS_DECLARED);
        broker.declare("- {type: penstock.queue, name: small, body: {limits: {maxMessages: 2, overflow: Reject}}}");
        JMSContext context = context(JMSContext.AUTO_ACKNOWLEDGE);
        Completions completions = new Completions();
        JMSProducer producer = context.createProducer().setAsync(completions);
        List.of("1", "2", "3").forEach(text -> producer.send(context.createQueue("small"), text));
        assertNull(completions.of("1").get(SOON, TimeUnit.MILLISECONDS));
        assertNull(completions.of("2").get(SOON, TimeUnit.MILLISECONDS));
        assertEquals(
                jakarta.jms.ResourceAllocationException.class,
                completions.of("3").get(SOON, TimeUnit.MILLISECONDS).getClass());
    }
}
