// What became of a write: a revision, or a change that another person has to approve.
import { t } from '../strings';

export const writtenText = (answer: any): string => (answer.state === 'pending' ? t.approvals.waits(answer.number) : t.draft.applied(answer.revision));
