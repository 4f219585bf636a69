/* Follow a plan: fetch the parts of its page that change, until it is over. */
'use strict';
{
    const EVERY = 1000;
    const MOST = 15000;

    const show = function(root, parts) {
        for (const [name, html] of Object.entries(parts)) {
            const part = root.querySelector(`[data-eventbus-part="${name}"]`);
            // Only what is different, so that nothing loses the focus without need.
            if (part.dataset.eventbusShown !== html) {
                part.dataset.eventbusShown = html;
                part.innerHTML = html;
            }
        }
    };

    const follow = async function(root, wait) {
        let next = EVERY;
        try {
            const response = await fetch(root.dataset.eventbusProgress, {
                headers: {'Accept': 'application/json'},
            });
            if (!response.ok || response.redirected) {
                throw new Error(response.statusText);
            }
            const progress = await response.json();
            show(root, progress.parts);
            if (progress.is_over) {
                root.querySelector('[data-eventbus-live]').hidden = true;
                return;
            }
        } catch {
            next = Math.min(wait * 2, MOST);
        }
        setTimeout(() => follow(root, next), document.hidden ? MOST : next);
    };

    document.addEventListener('DOMContentLoaded', function() {
        const root = document.getElementById('eventbus-plan');
        root.querySelector('[data-eventbus-live]').hidden = false;
        follow(root, EVERY);
    });
}
