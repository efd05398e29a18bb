package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.penstock.jms.OwnBroker.Ending;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import java.util.List;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** {@code ?consumer-priority=N} behind a queue's name: docs/concepts/messages.md, "Rank of consumers". */
@DisplayName("Consumer priority")
class ConsumerPriorityTest extends OwnBrokerCase {
    @ParameterizedTest
    @CsvSource({"KILLED, true", "TERMINATED, false"})
    @DisplayName("The higher one gets all while it has credit, what is more goes to the lower one; by failover too")
    void higherFirst(Ending ending, boolean makesWhatIsNamed) throws Exception {
        startBroker(makesWhatIsNamed, makesWhatIsNamed ? "" : ONLY_WHAT_IS_DECLARED);
        if (!makesWhatIsNamed) {
            broker.declare("- {type: penstock.queue, name: work, body: {}}\n- {type: penstock.queue, name: other, body: {}}");
        }
        Session sending = own();
        Queue work = sending.createQueue("work");
        MessageConsumer low = own().createConsumer(work);
        Session acknowledging = open(failover("jms.prefetchPolicy.all=2")).createSession(Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer high = acknowledging.createConsumer(acknowledging.createQueue("work?consumer-priority=7"));
        for (int round = 0; round < 2; round++) {
            publish(acknowledging, work, "1", "2", "3"); // on its connection: the broker has read its credit before
            assertEquals("3", text(low), "the higher one has room for two");
            assertEquals("1", text(high));
            Message second = next(high);
            assertEquals("2", second.getBody(String.class));
            second.acknowledge();
            publish(acknowledging, acknowledging.createQueue("other"), "what was acknowledged before is on disk now");
            assertNothing(low);
            if (round == 0) {
                broker.restart(ending);
                assertNothing(high); // it has found the broker again
                assertNothing(low);
            }
        }
        assertEquals(List.of(), browsed(sending, work));
    }
}
