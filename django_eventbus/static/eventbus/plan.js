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

    const say = function(root, isLive, isSilent) {
        root.querySelector('[data-eventbus-live]').hidden = !isLive;
        root.querySelector('[data-eventbus-silent]').hidden = !isSilent;
    };

    const fetched = async function(root) {
        const response = await fetch(root.dataset.eventbusProgress, {
            headers: {'Accept': 'application/json'},
        });
        // Redirected: to the login, whose page is not what was asked for.
        if (!response.ok || response.redirected) {
            throw new Error(response.statusText);
        }
        return response.json();
    };

    // Resolves after a while, or at once when somebody looks at the page again.
    const rest = function(wait) {
        return new Promise(function(resolve) {
            const done = function() {
                document.removeEventListener('visibilitychange', done);
                resolve();
            };
            document.addEventListener('visibilitychange', done);
            setTimeout(done, document.hidden ? MOST : wait);
        });
    };

    const follow = async function(root) {
        for (let wait = EVERY; ; await rest(wait)) {
            try {
                const progress = await fetched(root);
                show(root, progress.parts);
                say(root, !progress.is_over, false);
                if (progress.is_over) {
                    return;
                }
                wait = EVERY;
            } catch {
                say(root, false, true);
                wait = Math.min(wait * 2, MOST);
            }
        }
    };

    document.addEventListener('DOMContentLoaded', function() {
        follow(document.querySelector('[data-eventbus-progress]'));
    });
}
